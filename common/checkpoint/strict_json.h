// JSON from a file that nobody vouches for.
#ifndef TESSERA_COMMON_CHECKPOINT_STRICT_JSON_H_
#define TESSERA_COMMON_CHECKPOINT_STRICT_JSON_H_

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace tessera {

// Objects and arrays may lie in each other this deep.
constexpr int kJsonDepthMax = 16;

// The object that `text` is. kInvalidArgument, beginning with `where`: no JSON, no object, a key that
// is given twice, or nested too deep.
absl::StatusOr<nlohmann::json> ParseJsonObject(absl::string_view where, absl::string_view text);

// An object whose keys are all asked for, each once.
class JsonFields {
 public:
  // `where` names it in messages. Both outlive this.
  JsonFields(const std::string& where, const nlohmann::json& object);

  // These leave the value as it was where the key is missing or of another kind. The first error is kept.
  void Get(const char* key, std::string* value);
  void Get(const char* key, uint64_t* value);
  // The number must be in [0, 2^63).
  void Get(const char* key, int64_t* value);
  void Get(const char* key, double* value);
  // The number must be in [0, end).
  void GetBelow(uint64_t end, const char* key, uint64_t* value);
  // nullptr: not there, or no array or object.
  const nlohmann::json* GetArray(const char* key);
  const nlohmann::json* GetObject(const char* key);
  bool Has(const char* key) const { return object_.contains(key); }

  // OK: all were there, and nothing else was.
  absl::Status Finish();

 private:
  const nlohmann::json* Find(const char* key);
  void Want(const char* key, const char* kind);

  const std::string& where_;
  const nlohmann::json& object_;
  std::vector<std::string> asked_;
  absl::Status status_;
};

// 16 lower-case hexadecimal digits, for sums and hashes that a JSON number would round.
std::string Hex64(uint64_t value);
// nullopt-like: false where `text` is not what Hex64 writes.
bool ParseHex64(absl::string_view text, uint64_t* value);

}  // namespace tessera

#endif  // TESSERA_COMMON_CHECKPOINT_STRICT_JSON_H_
