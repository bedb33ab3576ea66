// What pieces keep between passes.
#include "worker/model/activation_store.h"

#include <catch2/catch.hpp>
#include <numeric>

#include "tests/worker/model/model_fixture.h"

namespace tessera {
namespace {

using Values = ActivationStore::Values;

std::vector<float> Numbers(int64_t count, float first) {
  std::vector<float> numbers(count);
  std::iota(numbers.begin(), numbers.end(), first);
  return numbers;
}

Values In(std::vector<float>& floats) {
  return {floats.data(), static_cast<int64_t>(floats.size())};
}

}  // namespace

TEST_CASE("pieces get back what they put, over the ends of pages and rooms", "[calibration]") {
  const auto backend = Cpu();
  ActivationStore store(4, 3, &backend->memory());
  // Eight pages; what is left of a room is too little for one.
  std::vector<float> one(14), two(23);
  store.AddRoom(In(one));
  store.AddRoom(In(two));
  std::vector<float> a = Numbers(5, 1), b = Numbers(6, 100), c = Numbers(9, 200);
  REQUIRE(store.Put(0, 0, {In(a), In(b)}));
  REQUIRE(store.Put(2, 0, {In(c)}));
  CHECK(store.pass(0) == 0);
  CHECK(store.pass(1) == -1);
  CHECK(store.pass(2) == 0);
  std::vector<float> got_a(5), got_b(6), got_c(9);
  store.Get(0, {In(got_a), In(got_b)});
  store.Get(2, {In(got_c)});
  CHECK(got_a == a);
  CHECK(got_b == b);
  CHECK(got_c == c);
}

TEST_CASE("where there is no room a piece keeps what it had, until others need less",
          "[calibration]") {
  const auto backend = Cpu();
  ActivationStore store(4, 2, &backend->memory());
  std::vector<float> room(16);
  store.AddRoom(In(room));
  std::vector<float> large = Numbers(12, 1), small = Numbers(4, 50), middle = Numbers(8, 90);
  REQUIRE(store.Put(0, 0, {In(large)}));
  REQUIRE(store.Put(1, 0, {In(small)}));
  CHECK_FALSE(store.Put(1, 1, {In(middle)}));
  CHECK(store.pass(1) == 0);
  std::vector<float> got(4);
  store.Get(1, {In(got)});
  CHECK(got == small);
  REQUIRE(store.Put(0, 1, {In(middle)}));
  REQUIRE(store.Put(1, 2, {In(middle)}));
  CHECK(store.pass(1) == 2);
  std::vector<float> again(8);
  store.Get(1, {In(again)});
  CHECK(again == middle);
}

}  // namespace tessera
