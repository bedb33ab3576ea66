#include "common/checkpoint/strict_json.h"

#include <algorithm>
#include <limits>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace tessera {

using Json = nlohmann::json;

absl::StatusOr<Json> ParseJsonObject(absl::string_view where, absl::string_view text) {
  std::vector<std::set<std::string>> keys;
  std::string twice;
  bool too_deep = false;
  const auto watch = [&](int depth, Json::parse_event_t event, Json& parsed) {
    switch (event) {
      case Json::parse_event_t::object_start:
        keys.emplace_back();
        break;
      case Json::parse_event_t::object_end:
        if (!keys.empty()) keys.pop_back();
        break;
      case Json::parse_event_t::key:
        if (!keys.empty() && !keys.back().insert(parsed.get_ref<const std::string&>()).second) {
          twice = parsed.get_ref<const std::string&>();
        }
        break;
      default:
        break;
    }
    // What is refused here is not kept, so that no nesting takes memory.
    if (depth > kJsonDepthMax) too_deep = true;
    return !too_deep;
  };
  Json json =
      Json::parse(text.data(), text.data() + text.size(), watch, /*allow_exceptions=*/false);
  if (too_deep) {
    return absl::InvalidArgumentError(
        absl::StrCat(where, ": is nested more than ", kJsonDepthMax, " deep"));
  }
  if (!twice.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(where, ": \"", twice, "\" is given twice"));
  }
  if (json.is_discarded()) {
    return absl::InvalidArgumentError(absl::StrCat(where, ": is not JSON"));
  }
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
  asked_.push_back(key);
  const auto found = object_.find(key);
  return found == object_.end() ? nullptr : &*found;
}

void JsonFields::Want(const char* key, const char* kind) {
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
  if (!status_.ok()) return status_;
  for (const auto& [key, value] : object_.items()) {
    if (std::find(asked_.begin(), asked_.end(), key) == asked_.end()) {
      return absl::InvalidArgumentError(absl::StrCat(where_, ".", key, ": unknown key"));
    }
  }
  return absl::OkStatus();
}

std::string Hex64(uint64_t value) { return absl::StrFormat("%016x", value); }

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
