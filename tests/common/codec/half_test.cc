#include "common/codec/half.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

namespace tessera {
namespace {

float Float(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

// The value of an f16 by its definition.
double F16Value(uint16_t half) {
  const int exponent = half >> 10 & 31;
  const double mantissa = half & 0x3ff;
  const double magnitude =
      exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25);
  return (half & 0x8000) != 0 ? -magnitude : magnitude;
}

TEST_CASE("every f16 that is a number widens to its value and comes back", "[codec][half]") {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const uint16_t half = static_cast<uint16_t>(bits);
    if ((half & 0x7c00) == 0x7c00) continue;
    REQUIRE(static_cast<double>(FromF16(half)) == F16Value(half));
    REQUIRE(ToF16(FromF16(half)) == half);
  }
}

TEST_CASE("every bf16 that is no NaN comes back", "[codec][half]") {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const uint16_t half = static_cast<uint16_t>(bits);
    if ((half & 0x7fff) > 0x7f80) continue;
    REQUIRE(FromBf16(half) == Float(bits << 16));
    REQUIRE(ToBf16(FromBf16(half)) == half);
  }
}

TEST_CASE("a number between two f16 goes to the nearer, a tie to the even one", "[codec][half]") {
  for (uint32_t bits = 0; bits < 0x7bff; ++bits) {
    const uint16_t low = static_cast<uint16_t>(bits);
    const float a = FromF16(low);
    const float b = FromF16(low + 1);
    const float middle = static_cast<float>((static_cast<double>(a) + b) / 2);
    const uint16_t even = (low & 1) == 0 ? low : low + 1;
    REQUIRE(ToF16(middle) == even);
    REQUIRE(ToF16(std::nextafter(middle, 0.0f)) == low);
    REQUIRE(ToF16(std::nextafter(middle, 1e9f)) == low + 1);
    REQUIRE(ToF16(-middle) == (even | 0x8000));
  }
}

TEST_CASE("a number between two bf16 goes to the nearer, a tie to the even one", "[codec][half]") {
  for (uint32_t bits = 0; bits < 0x7f7f; ++bits) {
    const uint32_t middle = bits << 16 | 0x8000;
    const uint16_t even = static_cast<uint16_t>((bits & 1) == 0 ? bits : bits + 1);
    REQUIRE(ToBf16(Float(middle)) == even);
    REQUIRE(ToBf16(Float(middle - 1)) == bits);
    REQUIRE(ToBf16(Float(middle + 1)) == bits + 1);
    REQUIRE(ToBf16(Float(middle | 0x80000000u)) == (even | 0x8000));
  }
}

TEST_CASE("what is too large becomes the largest number, infinity stays what it is",
          "[codec][half]") {
  const float infinity = std::numeric_limits<float>::infinity();
  const float big = std::numeric_limits<float>::max();
  CHECK(ToF16(65504.0f) == 0x7bff);
  CHECK(ToF16(65520.0f) == 0x7bff);
  CHECK(ToF16(big) == 0x7bff);
  CHECK(ToF16(-70000.0f) == 0xfbff);
  CHECK(ToF16(infinity) == 0x7c00);
  CHECK(ToF16(-infinity) == 0xfc00);
  CHECK(FromF16(0x7c00) == infinity);
  CHECK(ToBf16(big) == 0x7f7f);
  CHECK(ToBf16(-big) == 0xff7f);
  CHECK(ToBf16(infinity) == 0x7f80);
  CHECK(ToBf16(-infinity) == 0xff80);
}

TEST_CASE("a NaN stays one, with its sign", "[codec][half]") {
  for (const uint32_t bits : {0x7f800001u, 0x7fc00000u, 0x7fffffffu, 0xff800001u, 0xffffffffu}) {
    const uint16_t f16 = ToF16(Float(bits));
    CHECK((f16 & 0x7fff) > 0x7c00);
    CHECK(f16 >> 15 == bits >> 31);
    CHECK(std::isnan(FromF16(f16)));
    const uint16_t bf16 = ToBf16(Float(bits));
    CHECK((bf16 & 0x7fff) > 0x7f80);
    CHECK(bf16 >> 15 == bits >> 31);
    CHECK(std::isnan(FromBf16(bf16)));
  }
}

TEST_CASE("the smallest numbers round to a multiple of 2^-24 or to a zero with their sign",
          "[codec][half]") {
  CHECK(ToF16(0x1p-24f) == 1);
  CHECK(ToF16(0x1p-25f) == 0);
  CHECK(ToF16(std::nextafter(0x1p-25f, 1.0f)) == 1);
  CHECK(ToF16(0x3p-25f) == 2);
  CHECK(ToF16(-0x1p-30f) == 0x8000);
  CHECK(ToF16(std::numeric_limits<float>::denorm_min()) == 0);
  CHECK(ToF16(-0.0f) == 0x8000);
  CHECK(ToBf16(-0.0f) == 0x8000);
}

}  // namespace
}  // namespace tessera
