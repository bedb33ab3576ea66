// One scalar of the job, between its text in YAML and its field, as the field's (key) options say.
#ifndef TESSERA_COMMON_CONFIG_SCALAR_H_
#define TESSERA_COMMON_CONFIG_SCALAR_H_

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace tessera {

// The most bytes of a text in a job.
constexpr size_t kJobStringBytesMax = 4096;

// Sets `field` of `message`, or appends to it where it is repeated. `quoted` text is a string, a
// duration or a size, never a number. Returns what is wrong ("got "four", want an integer in [1,
// 4]"); the message is then untouched.
std::optional<std::string> SetScalar(absl::string_view text, bool quoted,
                                     const google::protobuf::FieldDescriptor& field,
                                     google::protobuf::Message* message);

// The field's value in its one canonical form, which SetScalar reads back to the same value.
// `index` is -1 for a field that is not repeated.
std::string ScalarText(const google::protobuf::Message& message,
                       const google::protobuf::FieldDescriptor& field, int index);

// What is wanted of the field's value, in words: "an integer in [1, 4]", "one of idx, csv", "a duration such as
// 10s, in [200ms, 1h]".
std::string WantedScalar(const google::protobuf::FieldDescriptor& field);

}  // namespace tessera

#endif  // TESSERA_COMMON_CONFIG_SCALAR_H_
