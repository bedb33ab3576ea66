// From a YAML tree to a message of job.proto, strictly: the walk that knows the schema's options.
//
// What may be written for a message: a map of its keys; nothing, for all defaults; for a (choice)
// with bare_name the name of a member; for a key with scalar_to or list_to also what goes to that
// field. A list of one scalar may be written without brackets. Nothing (null) for a scalar is the
// same as leaving its key out. A list with map_of_names is written as a map by its items' names, and
// items of one with in_order as lists of their fields' values.
#ifndef TESSERA_COMMON_CONFIG_MESSAGE_READER_H_
#define TESSERA_COMMON_CONFIG_MESSAGE_READER_H_

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include <string>

#include "common/config/job_error.h"
#include "common/config/schema.h"
#include "common/config/yaml_tree.h"

namespace tessera {

// Reads one job. Adds every error it finds and goes on.
class MessageReader {
 public:
  // Both outlive the reader. `positions` gets every key that is given: a map's key, a value's own
  // place; also where nothing (null) was given for one without a default. `of_tensors`: the job is one of tensors,
  // which has other keys (Key::only_in).
  MessageReader(JobErrors* errors, Positions* positions, bool of_tensors)
      : errors_(*errors), positions_(*positions), of_tensors_(of_tensors) {}

  // Fills `message` from `node`, absent keys with their defaults. `path` is "" for the whole job;
  // `at` is where a missing key is reported.
  void Read(const YamlNode& node, const std::string& path, Position at,
            google::protobuf::Message* message);

 private:
  using Field = google::protobuf::FieldDescriptor;

  void ReadKeys(const YamlNode& map, const std::string& path, Position at,
                google::protobuf::Message* message);
  void ReadChoice(const YamlNode& node, const std::string& path, Position at,
                  google::protobuf::Message* message);
  // The index in `map` of each field's value, -1 where absent. Reports unknown and repeated keys.
  std::vector<int> MatchKeys(const YamlNode& map, const std::string& path, const FieldList& fields);
  // Exactly one member of every oneof, unless `map` has keys that may have been meant.
  void CheckOneofs(const YamlNode& map, const std::string& path, Position at,
                   const google::protobuf::Descriptor& type);

  void ReadField(const YamlNode& value, Position key_at, const Field& field,
                 const std::string& path, google::protobuf::Message* message);
  // Reads `map`, which stands in the place of a list, and whose only key is `field`.
  void ReadMapOfList(const YamlNode& map, const google::protobuf::FieldDescriptor& field,
                     const std::string& path, google::protobuf::Message* message);
  // Reads the map of items by their names that `field`, a list, is written as (Key::map_of_names).
  void ReadNamed(const YamlNode& value, const Field& field, const std::string& path,
                 google::protobuf::Message* message);
  void ReadList(const YamlNode& value, const Field& field, const std::string& path,
                google::protobuf::Message* message);
  void ReadScalar(const YamlNode& value, const Field& field, const std::string& path,
                  google::protobuf::Message* message);
  // `is_null`: at `at` it is written, with nothing for a value.
  void FillAbsent(const Field& field, const std::string& path, Position at, bool is_null,
                  google::protobuf::Message* message);

  JobErrors& errors_;
  Positions& positions_;
  const bool of_tensors_;
};

}  // namespace tessera

#endif  // TESSERA_COMMON_CONFIG_MESSAGE_READER_H_
