#include "common/config/schema.h"

#include <algorithm>

#include "absl/strings/str_join.h"

namespace tessera {

bool IsKeyIn(const google::protobuf::FieldDescriptor& field, bool of_tensors) {
  const v1::Key& key = KeyOf(field);
  if (key.derived()) return false;
  return key.only_in() == v1::JOBS_OF_BOTH || (key.only_in() == v1::JOBS_OF_TENSORS) == of_tensors;
}

FieldList FieldsOf(const google::protobuf::Descriptor& message) {
  FieldList fields;
  for (int i = 0; i < message.field_count(); ++i) fields.push_back(message.field(i));
  return fields;
}

FieldList FieldsOf(const google::protobuf::OneofDescriptor& oneof) {
  FieldList fields;
  for (int i = 0; i < oneof.field_count(); ++i) fields.push_back(oneof.field(i));
  return fields;
}

FieldList KeysOf(const google::protobuf::Descriptor& message) {
  FieldList keys = FieldsOf(message);
  keys.erase(std::remove_if(keys.begin(), keys.end(),
                            [](const google::protobuf::FieldDescriptor* field) {
                              return !KeyOf(*field).written_below().empty() ||
                                     KeyOf(*field).derived();
                            }),
             keys.end());
  return keys;
}

const google::protobuf::FieldDescriptor* MapFieldOf(
    const google::protobuf::FieldDescriptor& field) {
  const std::string& name = KeyOf(field).map_to();
  return name.empty() ? nullptr : field.containing_type()->FindFieldByName(name);
}

std::vector<std::string> NamesOf(const FieldList& fields) {
  std::vector<std::string> names;
  for (const google::protobuf::FieldDescriptor* field : fields) names.push_back(field->name());
  return names;
}

std::string NamesList(const FieldList& fields) { return absl::StrJoin(NamesOf(fields), ", "); }

}  // namespace tessera
