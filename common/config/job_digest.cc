#include "common/config/job_digest.h"

#include <google/protobuf/message.h>
#include <openssl/evp.h>

#include <algorithm>
#include <memory>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/base/check.h"
#include "common/config/scalar.h"
#include "common/config/schema.h"
#include "common/layout/tensor_layout.h"

namespace tessera {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

// A value as the canonical text has it; strings are quoted, so that none can look like another key.
std::string ValueText(const Message& message, const FieldDescriptor& field, int index) {
  const std::string text = ScalarText(message, field, index);
  if (field.cpp_type() != FieldDescriptor::CPPTYPE_STRING) return text;
  return absl::StrCat("\"", absl::CEscape(text), "\"");
}

void AddLines(const Message& message, const std::string& path, bool of_tensors,
              std::vector<std::string>* lines);

// Adds the lines of a repeated field, each item under its number.
void AddRepeated(const Message& message, const FieldDescriptor& field, const std::string& path,
                 bool of_tensors, std::vector<std::string>* lines) {
  const Reflection& reflection = *message.GetReflection();
  const int count = reflection.FieldSize(message, &field);
  // Such a list was a number once, and many jobs have one number there still.
  if (count == 1 && !KeyOf(field).default_value().empty()) {
    lines->push_back(absl::StrCat(path, "=", ValueText(message, field, 0)));
    return;
  }
  for (int i = 0; i < count; ++i) {
    const std::string item = absl::StrCat(path, ".", i);
    if (IsMessage(field)) {
      // A choice has a line that names its member. Any other item, which may have no keys, has one as well.
      if (!IsChoice(*field.message_type())) lines->push_back(absl::StrCat(item, "={}"));
      AddLines(reflection.GetRepeatedMessage(message, &field, i), item, of_tensors, lines);
    } else {
      lines->push_back(absl::StrCat(item, "=", ValueText(message, field, i)));
    }
  }
}

// Whether the key is younger than some jobs and says what they have without it.
bool IsAsBefore(const Message& message, const FieldDescriptor& field) {
  const v1::Key& key = KeyOf(field);
  if (!key.added_later()) return false;
  const auto other = std::unique_ptr<Message>(message.New());
  TESSERA_CHECK(!SetScalar(key.default_value(), false, field, other.get()));
  return ScalarText(*other, field, -1) == ScalarText(message, field, -1);
}

// Adds the lines of the content of a job's tensors: two, however many tensors there are.
void AddLayout(const v1::TensorLayout& layout, std::vector<std::string>* lines) {
  lines->push_back(absl::StrCat("model.tensor_layout.shapes=\"", DescribeLayout(layout), "\""));
  lines->push_back(absl::StrCat("model.tensor_layout.sum=", layout.sum()));
}

// Adds the lines of all keys below `path` that are not local, of those that such a job has. A key that is optional and
// absent adds none, and neither does one that was added later and has its default: jobs without it keep the digest that
// they had before it existed.
void AddLines(const Message& message, const std::string& path, bool of_tensors,
              std::vector<std::string>* lines) {
  const Reflection& reflection = *message.GetReflection();
  for (const FieldDescriptor* field : FieldsOf(*message.GetDescriptor())) {
    if (KeyOf(*field).local() || !IsKeyIn(*field, of_tensors)) continue;
    const std::string below = absl::StrCat(path, path.empty() ? "" : ".", field->name());
    const bool in_oneof = field->real_containing_oneof() != nullptr;
    if (field->is_repeated()) {
      AddRepeated(message, *field, below, of_tensors, lines);
    } else if (IsMessage(*field)) {
      if (!reflection.HasField(message, field)) continue;
      if (in_oneof) lines->push_back(absl::StrCat(path, "=", field->name()));
      AddLines(reflection.GetMessage(message, field), below, of_tensors, lines);
    } else if (IsAsBefore(message, *field)) {
      continue;
    } else if (!(in_oneof || field->has_optional_keyword()) ||
               reflection.HasField(message, field)) {
      lines->push_back(absl::StrCat(below, "=", ValueText(message, *field, -1)));
    }
  }
}

// The item of a list with this number, which the list has, or which is its next.
Message* ItemOf(const FieldDescriptor& field, absl::string_view index, Message* message) {
  const Reflection& reflection = *message->GetReflection();
  const int count = reflection.FieldSize(*message, &field);
  int place = 0;
  if (!absl::SimpleAtoi(index, &place) || place < 0 || place > count) return nullptr;
  return place == count ? reflection.AddMessage(message, &field)
                        : reflection.MutableRepeatedMessage(message, &field, place);
}

// Sets the key at `path` of a job that is read back from its text; a path that this build does not know is left
// out.
void SetLine(absl::string_view path, absl::string_view value, Message* message) {
  const std::vector<std::string> names = absl::StrSplit(path, '.');
  for (size_t i = 0; i < names.size(); ++i) {
    const FieldDescriptor* const field = message->GetDescriptor()->FindFieldByName(names[i]);
    if (field == nullptr) return;
    if (!IsMessage(*field)) {
      const bool quoted = absl::StartsWith(value, "\"");
      std::string text(value);
      if (quoted && !absl::CUnescape(value.substr(1, value.size() - 2), &text)) return;
      (void)SetScalar(text, quoted, *field, message);
      return;
    }
    if (!field->is_repeated()) {
      message = message->GetReflection()->MutableMessage(message, field);
    } else {
      message = ++i < names.size() ? ItemOf(*field, names[i], message) : nullptr;
    }
    if (message == nullptr) return;
  }
  // A choice's line names by its value which member it has.
  const FieldDescriptor* const member =
      message->GetDescriptor()->FindFieldByName(std::string(value));
  if (member == nullptr || !IsMessage(*member) || member->is_repeated()) return;
  message->GetReflection()->MutableMessage(message, member);
}

// Gives keys that were added later the default that their absence from the text means.
void FillLaterKeys(Message* message) {
  const Reflection& reflection = *message->GetReflection();
  for (const FieldDescriptor* field : FieldsOf(*message->GetDescriptor())) {
    if (IsMessage(*field)) {
      for (int i = 0; field->is_repeated() && i < reflection.FieldSize(*message, field); ++i) {
        FillLaterKeys(reflection.MutableRepeatedMessage(message, field, i));
      }
      if (!field->is_repeated() && reflection.HasField(*message, field)) {
        FillLaterKeys(reflection.MutableMessage(message, field));
      }
    } else if (KeyOf(*field).added_later() && !reflection.HasField(*message, field)) {
      TESSERA_CHECK(!SetScalar(KeyOf(*field).default_value(), false, *field, message));
    }
  }
}

}  // namespace

v1::Job JobOfText(absl::string_view text) {
  std::vector<std::pair<absl::string_view, absl::string_view>> lines;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    const size_t end = line.find('=');
    if (end != line.npos) lines.emplace_back(line.substr(0, end), line.substr(end + 1));
  }
  // Lines are sorted so that item 10 of a list comes after item 9.
  std::sort(lines.begin(), lines.end(), [](const auto& a, const auto& b) {
    return std::tuple(a.first.size(), a) < std::tuple(b.first.size(), b);
  });
  v1::Job job;
  for (const auto& [path, value] : lines) SetLine(path, value, &job);
  FillLaterKeys(&job);
  return job;
}

std::string CanonicalJobText(const v1::Job& job) {
  std::vector<std::string> lines;
  const bool of_tensors = IsOfTensors(job.model());
  AddLines(job, "", of_tensors, &lines);
  if (of_tensors) AddLayout(job.model().tensor_layout(), &lines);
  std::sort(lines.begin(), lines.end());
  return absl::StrCat("tessera job 1\n", absl::StrJoin(lines, "\n"), "\n");
}

std::string JobDigest(const v1::Job& job) {
  const std::string text = CanonicalJobText(job);
  unsigned char hash[EVP_MAX_MD_SIZE];
  unsigned int hash_bytes = 0;
  TESSERA_CHECK(EVP_Digest(text.data(), text.size(), hash, &hash_bytes, EVP_sha256(), nullptr) ==
                1);
  return absl::BytesToHexString(absl::string_view(reinterpret_cast<const char*>(hash), hash_bytes));
}

}  // namespace tessera
