#include "common/config/quantity.h"

#include <catch2/catch.hpp>

#include <cmath>
#include <limits>
#include <random>

namespace tessera {
namespace {

TEST_CASE("an integer is decimal digits with a sign at most", "[quantity]") {
  CHECK(ParseInteger("0") == 0);
  CHECK(ParseInteger("-12") == -12);
  CHECK(ParseInteger("+12") == 12);
  CHECK(ParseInteger("9223372036854775807") == std::numeric_limits<int64_t>::max());
  for (const char* bad :
       {"", "-", "1.0", "1e3", "0x1", "1_000", " 1", "1 ", "--1", "9223372036854775808", "one"}) {
    INFO(bad);
    CHECK_FALSE(ParseInteger(bad));
  }
}

TEST_CASE("an unsigned integer has no sign and all 64 bits", "[quantity]") {
  CHECK(ParseUnsigned("18446744073709551615") == std::numeric_limits<uint64_t>::max());
  for (const char* bad : {"", "-1", "+1", "18446744073709551616"}) CHECK_FALSE(ParseUnsigned(bad));
}

TEST_CASE("a number is decimal and finite", "[quantity]") {
  CHECK(ParseNumber("0.1") == 0.1);
  CHECK(ParseNumber("1e-5") == 1e-5);
  CHECK(ParseNumber(".5") == 0.5);
  CHECK(ParseNumber("-3") == -3.0);
  CHECK_FALSE(std::signbit(*ParseNumber("-0.0")));
  for (const char* bad : {"", ".", "inf", "-inf", "nan", ".inf", ".nan", "1e999", "0x1p3", "1,5",
                          "1e", "e5", " 1", "1 "}) {
    INFO(bad);
    CHECK_FALSE(ParseNumber(bad));
  }
}

TEST_CASE("a duration has a unit, or is 0", "[quantity]") {
  CHECK(ParseDuration("5s") == 5000000000);
  CHECK(ParseDuration("200ms") == 200000000);
  CHECK(ParseDuration("1m30s") == 90000000000);
  CHECK(ParseDuration("1.5h") == 5400000000000);
  CHECK(ParseDuration("0") == 0);
  CHECK(ParseDuration("-1s") == -1000000000);
  for (const char* bad : {"", "5", "s", "5 s", "5d", "inf", "-inf", "300000h0", "9999999h"}) {
    INFO(bad);
    CHECK_FALSE(ParseDuration(bad));
  }
}

TEST_CASE("a size is whole bytes in decimal or binary units", "[quantity]") {
  CHECK(ParseSize("0") == 0);
  CHECK(ParseSize("512") == 512);
  CHECK(ParseSize("512B") == 512);
  CHECK(ParseSize("4MiB") == 4 * 1024 * 1024);
  CHECK(ParseSize("4 MiB") == 4 * 1024 * 1024);
  CHECK(ParseSize("1kB") == 1000);
  CHECK(ParseSize("1KiB") == 1024);
  CHECK(ParseSize("1GB") == 1000000000);
  CHECK(ParseSize("-1") == -1);
  for (const char* bad : {"", "MiB", "1.5GiB", "1mib", "1XB", "8388608TiB", "4MiB2", "1 2"}) {
    INFO(bad);
    CHECK_FALSE(ParseSize(bad));
  }
}

TEST_CASE("what is formatted parses back to the same value", "[quantity]") {
  std::mt19937_64 random(7);
  for (int i = 0; i < 20000; ++i) {
    const int64_t value = static_cast<int64_t>(random() >> (random() % 63 + 1));
    CHECK(ParseDuration(FormatDuration(value)) == value);
    CHECK(ParseSize(FormatSize(value)) == value);
    const int exponent = static_cast<int>(random() % 600) - 300;
    const double number = std::ldexp(static_cast<double>(value), exponent);
    CHECK(ParseNumber(FormatNumber(number)) == number);
  }
  CHECK(FormatNumber(0.1) == "0.1");
  CHECK(FormatNumber(1e-5) == "1e-05");
  CHECK(FormatNumber(1) == "1");
  CHECK(FormatDuration(90000000000) == "1m30s");
  CHECK(FormatSize(4 << 20) == "4MiB");
  CHECK(FormatSize(1000) == "1000");
  CHECK(FormatSize(0) == "0");
}

}  // namespace
}  // namespace tessera
