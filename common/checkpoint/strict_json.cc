#include "common/checkpoint/strict_json.h"

#include <algorithm>
#include <limits>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace tessera {

using Json = nlohmann::json;

namespace {

// Looks at a text before it is parsed, in time that grows with its length alone: nlohmann's parser with a callback goes
// through all siblings of an object at the end of each.
class StrictWatch final : public nlohmann::json_sax<Json> {
 public:
  bool is_too_deep() const { return is_too_deep_; }
  // A key that one object has twice; empty: there is none.
  const std::string& twice() const { return twice_; }

  // Values are left to the parser: only nesting and keys are watched.
  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool start_object(std::size_t) override {
    keys_.emplace_back();
    return GoesDeeper();
  }
  bool key(string_t& name) override {
    if (!keys_.back().insert(name).second) twice_ = name;
    return true;
  }
  bool end_object() override {
    keys_.pop_back();
    --depth_;
    return true;
  }
  bool start_array(std::size_t) override { return GoesDeeper(); }
  bool end_array() override {
    --depth_;
    return true;
  }
  // A text that is no JSON ends the pass; ParseJsonObject then says so.
  bool parse_error(std::size_t, const std::string&, const Json::exception&) override {
    return false;
  }

 private:
  // What is nested too deep is not read on, so that no nesting takes memory.
  bool GoesDeeper() {
    is_too_deep_ = ++depth_ > kJsonDepthMax;
    return !is_too_deep_;
  }

  std::vector<std::set<std::string>> keys_;  // of the objects that are open
  int depth_ = 0;
  std::string twice_;
  bool is_too_deep_ = false;
};

}  // namespace

absl::StatusOr<Json> ParseJsonObject(absl::string_view where, absl::string_view text) {
  // The first pass refuses depth and repeated keys, which nlohmann would accept: of two values it keeps the last.
  StrictWatch watch;
  const bool is_json = Json::sax_parse(text.data(), text.data() + text.size(), &watch);
  if (watch.is_too_deep()) {
    return absl::InvalidArgumentError(
        absl::StrCat(where, ": is nested more than ", kJsonDepthMax, " deep"));
  }
  if (!watch.twice().empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(where, ": \"", watch.twice(), "\" is given twice"));
  }
  if (!is_json) return absl::InvalidArgumentError(absl::StrCat(where, ": is not JSON"));
  Json json = Json::parse(text.data(), text.data() + text.size(), /*cb=*/nullptr,
                          /*allow_exceptions=*/false);
  if (!json.is_object()) {
    return absl::InvalidArgumentError(
        absl::StrCat(where, ": is ", json.type_name(), ", want an object"));
  }
  return json;
}

JsonFields::JsonFields(const std::string& where, const Json& object)
    : where_(where), object_(object) {
  if (!object.is_object()) {
    status_ = absl::InvalidArgumentError(
        absl::StrCat(where_, ": is ", object.type_name(), ", want an object"));
  }
}

const Json* JsonFields::Find(const char* key) {
  if (!object_.is_object()) return nullptr;
  // Every key that is asked for is noted; Finish refuses those that nobody asked for.
  asked_.push_back(key);
  const auto found = object_.find(key);
  return found == object_.end() ? nullptr : &*found;
}

void JsonFields::Want(const char* key, const char* kind) {
  // Only the first error is kept: what comes after it is often its consequence.
  if (!status_.ok()) return;
  const auto found = object_.find(key);
  status_ = absl::InvalidArgumentError(
      absl::StrCat(where_, ".", key, ": is ",
                   found == object_.end() ? "missing" : found->type_name(), ", want ", kind));
}

void JsonFields::Get(const char* key, std::string* value) {
  const Json* found = Find(key);
  if (found != nullptr && found->is_string()) {
    *value = found->get<std::string>();
  } else {
    Want(key, "a string");
  }
}

void JsonFields::Get(const char* key, uint64_t* value) {
  const Json* found = Find(key);
  if (found != nullptr && found->is_number_unsigned()) {
    *value = found->get<uint64_t>();
  } else {
    Want(key, "an integer that is not negative");
  }
}

void JsonFields::Get(const char* key, int64_t* value) {
  uint64_t wide = 0;
  Get(key, &wide);
  if (wide > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
    Want(key, "an integer below 2^63");
  } else if (status_.ok()) {
    *value = static_cast<int64_t>(wide);
  }
}

void JsonFields::GetBelow(uint64_t end, const char* key, uint64_t* value) {
  uint64_t wide = 0;
  Get(key, &wide);
  if (!status_.ok()) return;
  if (wide < end) {
    *value = wide;
  } else {
    status_ = absl::InvalidArgumentError(
        absl::StrCat(where_, ".", key, ": is ", wide, ", want below ", end));
  }
}

void JsonFields::Get(const char* key, double* value) {
  // Integers are numbers, too: JSON has 1 where a factor is whole.
  const Json* found = Find(key);
  if (found != nullptr && found->is_number()) {
    *value = found->get<double>();
  } else {
    Want(key, "a number");
  }
}

const Json* JsonFields::GetArray(const char* key) {
  const Json* found = Find(key);
  if (found != nullptr && found->is_array()) return found;
  Want(key, "an array");
  return nullptr;
}

const Json* JsonFields::GetObject(const char* key) {
  const Json* found = Find(key);
  if (found != nullptr && found->is_object()) return found;
  Want(key, "an object");
  return nullptr;
}

absl::Status JsonFields::Finish() {
  // A field that is missing is reported before one that is unknown: a key with a typing error is both.
  if (!status_.ok()) return status_;
  for (const auto& [key, value] : object_.items()) {
    if (std::find(asked_.begin(), asked_.end(), key) == asked_.end()) {
      return absl::InvalidArgumentError(absl::StrCat(where_, ".", key, ": unknown key"));
    }
  }
  return absl::OkStatus();
}

std::string Hex64(uint64_t value) { return absl::StrFormat("%016x", value); }

// Upper case is refused, so a sum has one spelling, and texts that are compared byte by byte stay comparable.
bool ParseHex64(absl::string_view text, uint64_t* value) {
  if (text.size() != 16) return false;
  uint64_t read = 0;
  for (const char c : text) {
    if (c >= '0' && c <= '9') {
      read = read << 4 | static_cast<uint64_t>(c - '0');
    } else if (c >= 'a' && c <= 'f') {
      read = read << 4 | static_cast<uint64_t>(c - 'a' + 10);
    } else {
      return false;
    }
  }
  *value = read;
  return true;
}

}  // namespace tessera
