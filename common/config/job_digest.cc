#include "common/config/job_digest.h"

#include <google/protobuf/message.h>
#include <openssl/evp.h>

#include <algorithm>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/check.h"
#include "common/config/scalar.h"
#include "common/config/schema.h"

namespace tessera {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

std::string ValueText(const Message& message, const FieldDescriptor& field, int index) {
  const std::string text = ScalarText(message, field, index);
  if (field.cpp_type() != FieldDescriptor::CPPTYPE_STRING) return text;
  return absl::StrCat("\"", absl::CEscape(text), "\"");
}

void AddLines(const Message& message, const std::string& path, std::vector<std::string>* lines);

void AddRepeated(const Message& message, const FieldDescriptor& field, const std::string& path,
                 std::vector<std::string>* lines) {
  const Reflection& reflection = *message.GetReflection();
  for (int i = 0; i < reflection.FieldSize(message, &field); ++i) {
    const std::string item = absl::StrCat(path, ".", i);
    if (IsMessage(field)) {
      AddLines(reflection.GetRepeatedMessage(message, &field, i), item, lines);
    } else {
      lines->push_back(absl::StrCat(item, "=", ValueText(message, field, i)));
    }
  }
}

void AddLines(const Message& message, const std::string& path, std::vector<std::string>* lines) {
  const Reflection& reflection = *message.GetReflection();
  for (const FieldDescriptor* field : FieldsOf(*message.GetDescriptor())) {
    if (KeyOf(*field).local()) continue;
    const std::string below = absl::StrCat(path, path.empty() ? "" : ".", field->name());
    const bool in_oneof = field->real_containing_oneof() != nullptr;
    if (field->is_repeated()) {
      AddRepeated(message, *field, below, lines);
    } else if (IsMessage(*field)) {
      if (!reflection.HasField(message, field)) continue;
      if (in_oneof) lines->push_back(absl::StrCat(path, "=", field->name()));
      AddLines(reflection.GetMessage(message, field), below, lines);
    } else if (!in_oneof || reflection.HasField(message, field)) {
      lines->push_back(absl::StrCat(below, "=", ValueText(message, *field, -1)));
    }
  }
}

}  // namespace

std::string CanonicalJobText(const v1::Job& job) {
  std::vector<std::string> lines;
  AddLines(job, "", &lines);
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
