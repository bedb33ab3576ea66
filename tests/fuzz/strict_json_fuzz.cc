// JSON that nobody vouches for: parsed, asked for keys of every kind, written again.
#include <string>

#include "common/base/check.h"
#include "common/checkpoint/strict_json.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tessera;
  const absl::string_view text(reinterpret_cast<const char*>(data), size);
  const std::string where = "x";
  const auto json = ParseJsonObject(where, text);
  if (!json.ok()) {
    TESSERA_CHECK(!json.status().message().empty());
    return 0;
  }
  JsonFields fields(where, *json);
  std::string string = "as it was";
  uint64_t count = 7;
  int64_t number = -7;
  double real = 0.5;
  fields.Get("string", &string);
  fields.Get("count", &count);
  fields.Get("number", &number);
  fields.Get("real", &real);
  TESSERA_CHECK(number >= 0 || number == -7);
  TESSERA_CHECK((fields.GetArray("array") == nullptr) ||
                (json->contains("array") && (*json)["array"].is_array()));
  TESSERA_CHECK((fields.GetObject("object") == nullptr) ||
                (json->contains("object") && (*json)["object"].is_object()));
  if (fields.Finish().ok()) TESSERA_CHECK(json->size() == 6);
  // Nothing throws: there are no exceptions to catch in this program.
  TESSERA_CHECK(ParseJsonObject(where, json->dump()).ok());
  return 0;
}
