#include "worker/data/field.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <random>
#include <string>

#include "absl/strings/str_format.h"

namespace tessera {
namespace {

TEST_CASE("a field that is a decimal number is read as one", "[field]") {
  const std::pair<const char*, float> cases[] = {
      {"0", 0.f},     {"16", 16.f},    {"9999999", 9999999.f}, {"16777217", 16777216.f},
      {"-1", -1.f},   {"+1", 1.f},     {"0.5", 0.5f},          {".5", .5f},
      {"5.", 5.f},    {"1e3", 1000.f}, {"+1E-3", 1e-3f},       {"-0.0", -0.f},
      {"1e-60", 0.f}, {"00012", 12.f}, {"1e-40", 1e-40f},      {"3.4028235e38", 3.4028235e38f},
  };
  for (const auto& [text, value] : cases) {
    CAPTURE(text);
    REQUIRE(ParseFloatField(text).has_value());
    REQUIRE(*ParseFloatField(text) == value);
  }
}

TEST_CASE("a field that is no finite number is none", "[field]") {
  for (const char* text :
       {"",     " ",      "x",    "1x",  "x1",  "1 ",  " 1",  "nan", "inf", "-inf", "infinity",
        "1e39", "-1e400", "0x10", "+-1", "++1", "--1", "1,0", "1e",  "1e+", "."}) {
    CAPTURE(text);
    REQUIRE_FALSE(ParseFloatField(text).has_value());
  }
  REQUIRE_FALSE(ParseFloatField(absl::string_view("1\0", 2)).has_value());
}

TEST_CASE("a float that is printed with nine digits is read back to the bit", "[field]") {
  std::mt19937 random(11);
  std::uniform_real_distribution<float> uniform(-1000, 1000);
  for (int i = 0; i < 20000; ++i) {
    const float value = uniform(random);
    const std::string text = absl::StrFormat("%.9g", value);
    CAPTURE(text);
    REQUIRE(*ParseFloatField(text) == value);
  }
}

TEST_CASE("an integer may have a sign and a fraction of zeros", "[field]") {
  REQUIRE(*ParseIntegerField("7") == 7);
  REQUIRE(*ParseIntegerField("-1") == -1);
  REQUIRE(*ParseIntegerField("+1") == 1);
  REQUIRE(*ParseIntegerField("3.0") == 3);
  REQUIRE(*ParseIntegerField("9223372036854775807") == INT64_MAX);
  for (const char* text :
       {"", "+", "1.5", "x", "1e3", "9223372036854775808", "1 ", ".0", "+-1", "1.0.0"}) {
    CAPTURE(text);
    REQUIRE_FALSE(ParseIntegerField(text).has_value());
  }
}

TEST_CASE("only a label may be an integer with an exponent", "[field]") {
  CHECK(ParseLabelField("3.000000000000000000e+00") == 3);
  CHECK(ParseLabelField("-2e0") == -2);
  CHECK(ParseLabelField("7") == 7);
  CHECK(ParseLabelField("9.007199254740991e15") == (int64_t{1} << 53) - 1);
  for (const char* field : {"9.007199254740992e15", "1e300", "2.5e0", "1e-1", "1e", "0x1e"}) {
    CHECK_FALSE(ParseLabelField(field).has_value());
  }
  CHECK_FALSE(ParseIntegerField("3.000000000000000000e+00").has_value());
}

TEST_CASE("a quoted field is escaped and short", "[field]") {
  REQUIRE(QuotedField("abc") == "\"abc\"");
  REQUIRE(QuotedField("a\"\n\xff") == "\"a\\\"\\n\\xff\"");
  REQUIRE(QuotedField(std::string(1000, 'a')).size() < 60);
}

}  // namespace
}  // namespace tessera
