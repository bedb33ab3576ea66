// JSON that strangers may have written: what is refused, and in what time.
#include "common/checkpoint/strict_json.h"

#include <catch2/catch.hpp>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/base/steady_clock.h"

namespace tessera {
namespace {

std::string Refusal(const std::string& text) {
  const auto json = ParseJsonObject("\"f\"", text);
  return std::string(json.status().message());
}

TEST_CASE("a text that is no object, or has a key twice, is refused by what is wrong",
          "[checkpoint][json]") {
  CHECK(ParseJsonObject("\"f\"", R"({"a": [1, {"b": 2}], "c": {"a": null}})").ok());
  CHECK(Refusal("[1]") == "\"f\": is array, want an object");
  CHECK(Refusal("{\"a\": 1") == "\"f\": is not JSON");
  CHECK(Refusal("{\"a\": 1} x") == "\"f\": is not JSON");
  CHECK(Refusal("{\"a\": \"\xff\"}") == "\"f\": is not JSON");
  CHECK(Refusal(R"({"a": {"b": 1, "c": 2, "b": 3}})") == "\"f\": \"b\" is given twice");
  std::string deep = "{\"a\": ";
  for (int i = 0; i < 100'000; ++i) deep += "[";
  CHECK(Refusal(deep) == absl::StrCat("\"f\": is nested more than ", kJsonDepthMax, " deep"));
}

TEST_CASE("a list of very many objects is read in time that grows with its length",
          "[checkpoint][json][strangers][timed]") {
  constexpr int kItems = 300'000;
  std::string text = "{\"members\": [{\"member\": 0}";
  for (int i = 1; i < kItems; ++i) {
    absl::StrAppend(&text, ",\n {\"member\": ", i, ", \"rank\": ", i, ", \"exchange\": 0}");
  }
  text += "]}";
  const absl::Time begin = SteadyNow();
  const auto json = ParseJsonObject("\"f\"", text);
  REQUIRE(json.ok());
  CHECK((*json)["members"].size() == kItems);
  // It takes a second; where each object cost a look at all others it took minutes.
  CHECK(SteadyNow() - begin < absl::Seconds(20));
}

}  // namespace
}  // namespace tessera
