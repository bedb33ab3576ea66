#include "common/config/job_print.h"

#include <google/protobuf/message.h>

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/config/scalar.h"
#include "common/config/schema.h"
#include "common/layout/tensor_layout.h"

namespace tessera {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

// Whether YAML readers take the word for something else than a string.
bool IsReserved(absl::string_view text) {
  const std::string lower = absl::AsciiStrToLower(text);
  for (const char* word : {"null", "true", "false", "yes", "no", "on", "off", "y", "n"}) {
    if (lower == word) return true;
  }
  return false;
}

// `text` as YAML: without quotes where every YAML reader takes it for a string, else in double quotes.
std::string YamlString(const std::string& text) {
  const bool plain =
      !text.empty() && (absl::ascii_isalpha(text[0]) || text[0] == '/') && !IsReserved(text) &&
      std::all_of(text.begin(), text.end(), [](char c) {
        return absl::ascii_isalnum(c) || c == '_' || c == '-' || c == '.' || c == '/';
      });
  if (plain) return text;
  return absl::StrCat("\"", absl::StrReplaceAll(text, {{"\\", "\\\\"}, {"\"", "\\\""}}), "\"");
}

std::string ValueText(const Message& message, const FieldDescriptor& field, int index) {
  const std::string text = ScalarText(message, field, index);
  return field.cpp_type() == FieldDescriptor::CPPTYPE_STRING ? YamlString(text) : text;
}

class Printer {
 public:
  explicit Printer(bool of_tensors) : of_tensors_(of_tensors) {}

  // Prints the keys of `message`, each on lines of its own. A list's item has `lead` "- " before its first key.
  void Print(const Message& message, int indent, absl::string_view lead) {
    const Reflection& reflection = *message.GetReflection();
    for (const FieldDescriptor* field : FieldsOf(*message.GetDescriptor())) {
      if (!IsShown(message, *field)) continue;
      if (const std::string& above = KeyOf(*field).written_below(); !above.empty()) {
        // The list of that name is empty.
        absl::StrAppend(&text_, std::string(indent, ' '), above, ":\n");
        indent += 2;
      }
      const std::string key = absl::StrCat(std::string(indent, ' '), lead, field->name(), ":");
      indent += static_cast<int>(lead.size());
      lead = "";
      if (KeyOf(*field).map_of_names()) {
        PrintNamed(message, *field, key, indent);
      } else if (field->is_repeated()) {
        PrintList(message, *field, key, indent);
      } else if (!IsMessage(*field)) {
        absl::StrAppend(&text_, key, " ", ValueText(message, *field, -1), "\n");
      } else if (const Message& part = reflection.GetMessage(message, field); ShowsNothing(part)) {
        absl::StrAppend(&text_, key, " {}\n");
      } else {
        absl::StrAppend(&text_, key, "\n");
        Print(part, indent + 2, "");
      }
      if (!KeyOf(*field).written_below().empty()) indent -= 2;
    }
  }

  std::string Take() { return std::move(text_); }

 private:
  bool IsShown(const Message& message, const FieldDescriptor& field) const {
    if (!IsKeyIn(field, of_tensors_)) return false;
    if (field.is_repeated()) return message.GetReflection()->FieldSize(message, &field) > 0;
    const bool may_be_absent =
        field.real_containing_oneof() != nullptr || field.has_optional_keyword();
    if (!IsMessage(field) && !may_be_absent) return true;
    return message.GetReflection()->HasField(message, &field);
  }

  bool ShowsNothing(const Message& message) const {
    const FieldList fields = FieldsOf(*message.GetDescriptor());
    return std::none_of(fields.begin(), fields.end(),
                        [&](const FieldDescriptor* field) { return IsShown(message, *field); });
  }

  // Prints items by their names, each on a line (Key::map_of_names).
  void PrintNamed(const Message& message, const FieldDescriptor& field, const std::string& key,
                  int indent) {
    const FieldDescriptor& name = *field.message_type()->field(0);
    const FieldDescriptor& content = *field.message_type()->field(1);
    absl::StrAppend(&text_, key, "\n");
    const Reflection& reflection = *message.GetReflection();
    for (int i = 0; i < reflection.FieldSize(message, &field); ++i) {
      const Message& item = reflection.GetRepeatedMessage(message, &field, i);
      absl::StrAppend(&text_, std::string(indent + 2, ' '), ValueText(item, name, -1), ": [");
      const int count = item.GetReflection()->FieldSize(item, &content);
      for (int k = 0; k < count; ++k) {
        absl::StrAppend(&text_, k > 0 ? ", " : "",
                        InOrder(item.GetReflection()->GetRepeatedMessage(item, &content, k)));
      }
      absl::StrAppend(&text_, "]\n");
    }
  }

  // The message as the list of its fields' values (Key::in_order).
  static std::string InOrder(const Message& message) {
    std::string text = "[";
    for (const FieldDescriptor* field : FieldsOf(*message.GetDescriptor())) {
      absl::StrAppend(&text, text.size() > 1 ? ", " : "", ValueText(message, *field, -1));
    }
    return text + "]";
  }

  void PrintList(const Message& message, const FieldDescriptor& field, const std::string& key,
                 int indent) {
    const Reflection& reflection = *message.GetReflection();
    const int count = reflection.FieldSize(message, &field);
    absl::StrAppend(&text_, key, IsMessage(field) ? "\n" : " [");
    for (int i = 0; i < count; ++i) {
      if (IsMessage(field)) {
        const Message& item = reflection.GetRepeatedMessage(message, &field, i);
        if (ShowsNothing(item)) absl::StrAppend(&text_, std::string(indent + 2, ' '), "- {}\n");
        Print(item, indent + 2, "- ");
      } else {
        absl::StrAppend(&text_, i > 0 ? ", " : "", ValueText(message, field, i));
      }
    }
    if (!IsMessage(field)) absl::StrAppend(&text_, "]\n");
  }

  const bool of_tensors_;
  std::string text_;
};

}  // namespace

std::string PrintJob(const v1::Job& job) {
  Printer printer(IsOfTensors(job.model()));
  printer.Print(job, 0, "");
  return printer.Take();
}

}  // namespace tessera
