#include "common/config/scalar.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/check.h"
#include "common/config/job_error.h"
#include "common/config/nearest_name.h"
#include "common/config/quantity.h"
#include "common/config/schema.h"

namespace tessera {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

template <typename T>
bool InBounds(const v1::Key& key, T value) {
  if (key.has_min() && (key.above_min() ? value <= key.min() : value < key.min())) return false;
  if (key.has_max() && (key.below_max() ? value >= key.max() : value > key.max())) return false;
  return true;
}

std::optional<int64_t> ParseWithUnit(absl::string_view text, v1::Unit unit) {
  if (unit == v1::UNIT_DURATION) return ParseDuration(text);
  if (unit == v1::UNIT_BYTES) return ParseSize(text);
  return ParseInteger(text);
}

std::optional<bool> ParseBool(absl::string_view text) {
  if (text == "true" || text == "True" || text == "TRUE") return true;
  if (text == "false" || text == "False" || text == "FALSE") return false;
  return std::nullopt;
}

// Reflection has a Set and an Add for each type.
#define TESSERA_PUT(Type, value)                                      \
  (field.is_repeated() ? reflection.Add##Type(message, &field, value) \
                       : reflection.Set##Type(message, &field, value))

// Sets a numeric field, if the text is a number of its type within its bounds. False: it is not, and nothing has
// changed.
bool PutNumber(absl::string_view text, const FieldDescriptor& field, Message* message) {
  const Reflection& reflection = *message->GetReflection();
  const v1::Key& key = KeyOf(field);
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT64: {
      const std::optional<int64_t> value = ParseWithUnit(text, key.unit());
      if (!value || !InBounds(key, *value)) return false;
      TESSERA_PUT(Int64, *value);
      return true;
    }
    case FieldDescriptor::CPPTYPE_UINT64: {
      const std::optional<uint64_t> value = ParseUnsigned(text);
      if (!value || !InBounds(key, *value)) return false;
      TESSERA_PUT(UInt64, *value);
      return true;
    }
    case FieldDescriptor::CPPTYPE_DOUBLE: {
      const std::optional<double> value = ParseNumber(text);
      if (!value || !InBounds(key, *value)) return false;
      TESSERA_PUT(Double, *value);
      return true;
    }
    case FieldDescriptor::CPPTYPE_BOOL: {
      const std::optional<bool> value = ParseBool(text);
      if (!value) return false;
      TESSERA_PUT(Bool, *value);
      return true;
    }
    default:
      TESSERA_CHECK(!"a type of field that a job does not have");
      return false;
  }
}

// What is wrong with a text as the value of this field; nothing where it may stand there.
std::optional<std::string> StringComplaint(absl::string_view text, const FieldDescriptor& field) {
  const v1::Key& key = KeyOf(field);
  if (text.size() > kJobStringBytesMax) {
    return absl::StrCat("got ", text.size(), " bytes, want at most ", kJobStringBytesMax);
  }
  if (std::any_of(text.begin(), text.end(),
                  [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7F; })) {
    return absl::StrCat("got ", Quoted(text),
                        ", want text without line ends or control characters");
  }
  if (text.empty() && (key.required() || field.is_repeated())) {
    return absl::StrCat("got \"\", want ", WantedScalar(field));
  }
  if (key.one_of_size() > 0 &&
      std::find(key.one_of().begin(), key.one_of().end(), text) == key.one_of().end()) {
    return absl::StrCat("got ", Quoted(text), ", want ", WantedScalar(field),
                        DidYouMean(text, {key.one_of().begin(), key.one_of().end()}));
  }
  return std::nullopt;
}

// A bound in the words in which the value itself is written: a duration, a size or a number.
std::string BoundText(const FieldDescriptor& field, double bound) {
  switch (KeyOf(field).unit()) {
    case v1::UNIT_DURATION:
      return FormatDuration(static_cast<int64_t>(bound));
    case v1::UNIT_BYTES:
      return FormatSize(static_cast<int64_t>(bound));
    default:
      break;
  }
  if (field.cpp_type() == FieldDescriptor::CPPTYPE_DOUBLE) return FormatNumber(bound);
  return absl::StrCat(static_cast<int64_t>(bound));
}

// The field's bounds in words: " in [1, 4]", " of at least 1", " above 0", or nothing.
std::string BoundsText(const FieldDescriptor& field) {
  const v1::Key& key = KeyOf(field);
  if (field.cpp_type() == FieldDescriptor::CPPTYPE_UINT64 && !key.has_max()) {
    return absl::StrCat(" in [", BoundText(field, key.min()), ", ",
                        std::numeric_limits<uint64_t>::max(), "]");
  }
  if (key.has_min() && key.has_max()) {
    return absl::StrCat(" in ", key.above_min() ? "(" : "[", BoundText(field, key.min()), ", ",
                        BoundText(field, key.max()), key.below_max() ? ")" : "]");
  }
  if (key.has_min()) {
    return absl::StrCat(key.above_min() ? " above " : " of at least ", BoundText(field, key.min()));
  }
  if (key.has_max()) {
    return absl::StrCat(key.below_max() ? " below " : " of at most ", BoundText(field, key.max()));
  }
  return "";
}

}  // namespace

std::optional<std::string> SetScalar(absl::string_view text, bool quoted,
                                     const FieldDescriptor& field, Message* message) {
  if (field.cpp_type() == FieldDescriptor::CPPTYPE_STRING) {
    std::optional<std::string> complaint = StringComplaint(text, field);
    if (complaint) return complaint;
    const Reflection& reflection = *message->GetReflection();
    TESSERA_PUT(String, std::string(text));
    return std::nullopt;
  }
  const std::string& zero_word = KeyOf(field).zero_word();
  if (!zero_word.empty() && text == zero_word) {
    const Reflection& reflection = *message->GetReflection();
    TESSERA_PUT(Int64, 0);
    return std::nullopt;
  }
  // A duration or a size is text in YAML, with quotes and without.
  if (quoted && KeyOf(field).unit() == v1::UNIT_NONE) {
    return absl::StrCat("got the string ", Quoted(text), ", want ", WantedScalar(field),
                        ", without quotes");
  }
  if (PutNumber(text, field, message)) return std::nullopt;
  return absl::StrCat("got ", Quoted(text), ", want ", WantedScalar(field));
}

#undef TESSERA_PUT

std::string ScalarText(const Message& message, const FieldDescriptor& field, int index) {
  const Reflection& reflection = *message.GetReflection();
#define TESSERA_GET(Type)                            \
  (index < 0 ? reflection.Get##Type(message, &field) \
             : reflection.GetRepeated##Type(message, &field, index))
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT64: {
      const int64_t value = TESSERA_GET(Int64);
      const v1::Unit unit = KeyOf(field).unit();
      if (unit == v1::UNIT_DURATION) return FormatDuration(value);
      if (unit == v1::UNIT_BYTES) return FormatSize(value);
      if (value == 0 && !KeyOf(field).zero_word().empty()) return KeyOf(field).zero_word();
      return absl::StrCat(value);
    }
    case FieldDescriptor::CPPTYPE_UINT64:
      return absl::StrCat(TESSERA_GET(UInt64));
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return FormatNumber(TESSERA_GET(Double));
    case FieldDescriptor::CPPTYPE_BOOL:
      return TESSERA_GET(Bool) ? "true" : "false";
    case FieldDescriptor::CPPTYPE_STRING:
      return TESSERA_GET(String);
    default:
      break;
  }
#undef TESSERA_GET
  TESSERA_CHECK(!"a type of field that a job does not have");
  return "";
}

std::string WantedScalar(const FieldDescriptor& field) {
  const v1::Key& key = KeyOf(field);
  if (field.cpp_type() == FieldDescriptor::CPPTYPE_BOOL) return "true or false";
  if (field.cpp_type() == FieldDescriptor::CPPTYPE_STRING) {
    if (key.path() != v1::PATH_NONE) return "a path";
    if (key.one_of_size() == 0) return "text";
    return absl::StrCat("one of ", absl::StrJoin(key.one_of(), ", "));
  }
  if (key.unit() == v1::UNIT_DURATION) {
    return absl::StrCat("a duration such as 10s,", BoundsText(field));
  }
  if (key.unit() == v1::UNIT_BYTES) {
    return absl::StrCat("a size such as 4MiB, ", kSizeUnits, ",", BoundsText(field));
  }
  const bool integer = field.cpp_type() != FieldDescriptor::CPPTYPE_DOUBLE;
  return absl::StrCat(integer ? "an integer" : "a number", BoundsText(field),
                      key.zero_word().empty() ? "" : absl::StrCat(", or ", key.zero_word()));
}

}  // namespace tessera
