#include "worker/data/number_array.h"

#include <sys/resource.h>

#include <catch2/catch.hpp>
#include <cstdint>
#include <limits>
#include <new>
#include <utility>
#include <vector>

namespace tessera {
namespace {

int64_t PeakBytes() {
  rusage usage;
  REQUIRE(getrusage(RUSAGE_SELF, &usage) == 0);
  return int64_t{usage.ru_maxrss} * 1024;
}

TEST_CASE("a number array is a std::vector of what is appended", "[number_array]") {
  NumberArray<int32_t> array;
  std::vector<int32_t> want;
  REQUIRE(array == want);
  for (int32_t i = 0; i < 1000; ++i) {
    array.push_back(i);
    want.push_back(i);
    const int32_t two[] = {-i, i * i};
    array.append(two, i % 3);
    want.insert(want.end(), two, two + i % 3);
  }
  REQUIRE(array == want);
  REQUIRE(array.size() == want.size());
  REQUIRE(array.back() == want.back());
  array.shrink_to_fit();
  REQUIRE(array == want);
  REQUIRE(array.capacity() == want.size());
  array.resize(1005);
  want.resize(1005);
  REQUIRE(array == want);
  array.resize(3000);
  want.resize(3000);
  REQUIRE(array == want);
}

TEST_CASE("number arrays are copied and moved", "[number_array]") {
  NumberArray<float> array = {1, 2, 3};
  NumberArray<float> copy = array;
  copy[1] = 5;
  REQUIRE(array == NumberArray<float>{1, 2, 3});
  REQUIRE(copy == NumberArray<float>{1, 5, 3});
  NumberArray<float> moved = std::move(copy);
  REQUIRE(moved == NumberArray<float>{1, 5, 3});
  array = moved;
  REQUIRE(array == moved);
  REQUIRE(array.data() != moved.data());
  array.clear();
  array.shrink_to_fit();
  REQUIRE(array.empty());
  array.push_back(7);
  REQUIRE(array == NumberArray<float>{7});
}

TEST_CASE("a number array that cannot grow throws and stays as it was", "[number_array]") {
  NumberArray<int64_t> array = {4};
  REQUIRE_THROWS_AS(array.reserve(std::numeric_limits<size_t>::max()), std::bad_alloc);
  REQUIRE_THROWS_AS(array.reserve(size_t{1} << 58), std::bad_alloc);
  REQUIRE(array == NumberArray<int64_t>{4});
}

// A std::vector has 1.5 to 3 times as much for a moment.
TEST_CASE("a number array grows and fits without a second copy in memory", "[number_array]") {
  constexpr int64_t kValues = 24'000'001;
  const int64_t before = PeakBytes();
  NumberArray<float> array;
  for (int64_t i = 0; i < kValues; ++i) array.push_back(static_cast<float>(i));
  array.shrink_to_fit();
  REQUIRE(array.size() == kValues);
  REQUIRE(PeakBytes() - before < kValues * int64_t{sizeof(float)} * 5 / 4);
}

}  // namespace
}  // namespace tessera
