#include "server/rpc/message_limits.h"

#include <google/protobuf/descriptor.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

namespace tessera {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

absl::Status CheckText(const Message& message, const FieldDescriptor& field,
                       const std::string& text) {
  if (text.size() <= kTextBytesMax) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(message.GetDescriptor()->name(), ".", field.name(),
                                                 ": is ", text.size(), " bytes, want at most ",
                                                 kTextBytesMax));
}

// Checks strings and messages within messages; bytes have limits of their own.
absl::Status CheckField(const Message& message, const FieldDescriptor& field) {
  const google::protobuf::Reflection& reflection = *message.GetReflection();
  const bool is_text = field.type() == FieldDescriptor::TYPE_STRING;
  const bool is_message = field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE;
  if (!is_text && !is_message) return absl::OkStatus();
  std::string scratch;
  const int count = field.is_repeated() ? reflection.FieldSize(message, &field) : 1;
  for (int i = 0; i < count; ++i) {
    absl::Status status;
    if (is_text) {
      status = CheckText(message, field,
                         field.is_repeated()
                             ? reflection.GetRepeatedStringReference(message, &field, i, &scratch)
                             : reflection.GetStringReference(message, &field, &scratch));
    } else {
      status = CheckTexts(field.is_repeated() ? reflection.GetRepeatedMessage(message, &field, i)
                                              : reflection.GetMessage(message, &field));
    }
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckTexts(const Message& message) {
  std::vector<const FieldDescriptor*> fields;
  message.GetReflection()->ListFields(message, &fields);
  for (const FieldDescriptor* field : fields) {
    if (absl::Status status = CheckField(message, *field); !status.ok()) return status;
  }
  return absl::OkStatus();
}

}  // namespace tessera
