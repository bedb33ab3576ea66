// What job.proto says about its keys, and the few words that every walk over it shares.
#ifndef TESSERA_COMMON_CONFIG_SCHEMA_H_
#define TESSERA_COMMON_CONFIG_SCHEMA_H_

#include <google/protobuf/descriptor.h>

#include <string>
#include <vector>

#include "proto/schema.pb.h"

namespace tessera {

using FieldList = std::vector<const google::protobuf::FieldDescriptor*>;

inline const v1::Key& KeyOf(const google::protobuf::FieldDescriptor& field) {
  return field.options().GetExtension(v1::key);
}

inline bool IsMessage(const google::protobuf::FieldDescriptor& field) {
  return field.cpp_type() == google::protobuf::FieldDescriptor::CPPTYPE_MESSAGE;
}

// Whether the message is written as exactly one of its members.
inline bool IsChoice(const google::protobuf::Descriptor& message) {
  return message.options().HasExtension(v1::choice);
}
inline bool HasBareNames(const google::protobuf::Descriptor& message) {
  return message.options().GetExtension(v1::choice).bare_name();
}

// Whether jobs of tensors (model.tensors), or the others, have the field as a key (Key::only_in). A derived field is a
// key of neither.
bool IsKeyIn(const google::protobuf::FieldDescriptor& field, bool of_tensors);

// The message's fields in the order of the schema's file.
FieldList FieldsOf(const google::protobuf::Descriptor& message);
FieldList FieldsOf(const google::protobuf::OneofDescriptor& oneof);
// Those that are written as keys of the message itself, and neither below another key of it (Key::written_below) nor by
// nobody (Key::derived).
FieldList KeysOf(const google::protobuf::Descriptor& message);
// The field that a map in the place of the list `field` stands for (Key::map_to); null: a map cannot stand there.
const google::protobuf::FieldDescriptor* MapFieldOf(const google::protobuf::FieldDescriptor& field);

std::vector<std::string> NamesOf(const FieldList& fields);
// The fields' names, separated by commas.
std::string NamesList(const FieldList& fields);

}  // namespace tessera

#endif  // TESSERA_COMMON_CONFIG_SCHEMA_H_
