// The outer optimizers of DiLoCo: what holds between them, and between them and averaging.
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "common/base/philox.h"
#include "common/rule/add.h"
#include "common/rule/delayed_nesterov.h"
#include "common/rule/negated.h"
#include "common/rule/sgd.h"

namespace tessera {
namespace {

float Uniform(uint64_t a, uint64_t b) {
  return 2 * UnitFloat(Philox(1, Stream::kDropout, a, b)[0]) - 1;
}

bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

// w after `updates` random updates of 50 entries.
std::vector<float> After(const UpdateRule& rule, int updates) {
  std::vector<float> w(50), u(50);
  for (int i = 0; i < 50; ++i) w[i] = Uniform(0, i);
  std::vector<std::vector<float>> states(rule.state_count(), std::vector<float>(50, 0.0f));
  std::vector<float*> addresses;
  for (std::vector<float>& s : states) addresses.push_back(s.data());
  for (int number = 1; number <= updates; ++number) {
    for (int i = 0; i < 50; ++i) u[i] = Uniform(number, i);
    Update update;
    update.scale = 1.0f / 3;
    update.number = number;
    rule.Apply(update, u.data(), w.data(), w.data(), addresses.data(), 50);
  }
  return w;
}

TEST_CASE("an outer step of rate 1 without momentum is averaging, bit for bit", "[rule][outer]") {
  const auto outer = MakeNegated(MakeSgd({1, 0, 0, true}));
  const auto add = MakeAdd();
  REQUIRE(outer->state_count() == 0);
  const float inf = std::numeric_limits<float>::infinity();
  const float tiny = std::numeric_limits<float>::denorm_min();
  const std::vector<float> edges = {0.0f, -0.0f, tiny, -tiny, 1.0f, -1.0f, 0.1f, 3e38f, -3e38f};
  std::vector<float> w, u;
  for (const float a : edges) {
    for (const float b : edges) {
      w.push_back(a);
      u.push_back(b);
    }
    w.insert(w.end(), {a, a});
    u.insert(u.end(), {inf, -inf});
  }
  for (int i = 0; i < 1000; ++i) {
    w.push_back(Uniform(1, i));
    u.push_back(Uniform(2, i) * 1e-3f);
  }
  for (const float scale : {1.0f, 0.5f, 1.0f / 3, 0.0f}) {
    std::vector<float> by_outer(w.size()), by_add(w.size());
    Update update;
    update.scale = scale;
    outer->Apply(update, u.data(), w.data(), by_outer.data(), nullptr, w.size());
    add->Apply(update, u.data(), w.data(), by_add.data(), nullptr, w.size());
    for (size_t i = 0; i < w.size(); ++i) {
      // inf * 0 is NaN in both; the sign of a NaN says nothing.
      if (std::isnan(by_add[i]) && std::isnan(by_outer[i])) by_outer[i] = by_add[i];
    }
    CHECK(SameBits(by_outer, by_add));
  }
}

TEST_CASE("two steps of the outer optimizer, worked by hand", "[rule][outer]") {
  // Deltas 1 and 0.5 (D = -1, -0.5), eta 0.5, mu 0.5, from w = 0:
  //   m = -1      w = 0 - 0.5 (-1 + 0.5 * -1)       = 0.75
  //   m = -1      w = 0.75 - 0.5 (-0.5 + 0.5 * -1)  = 1.25
  const auto rule = MakeNegated(MakeSgd({0.5f, 0.5f, 0, true}));
  float w = 0, m = 0;
  float* const states[] = {&m};
  const float first = 1, second = 0.5f;
  rule->Apply({}, &first, &w, &w, states, 1);
  CHECK(m == -1);
  CHECK(w == 0.75f);
  rule->Apply({}, &second, &w, &w, states, 1);
  CHECK(m == -1);
  CHECK(w == 1.25f);
}

TEST_CASE("delayed nesterov with interval 1 is the outer optimizer itself", "[rule][outer]") {
  const auto delayed = MakeDelayedNesterov({0.7f, 0.9f, 0, 1});
  const auto plain = MakeSgd({0.7f, 0.9f, 0, true});
  CHECK(After(*delayed, 20) == After(*plain, 20));
}

TEST_CASE("delayed nesterov holds its momentum back until every n-th update", "[rule][outer]") {
  // N = 2, eta 1, mu 0.5, every u = 1, from w = 0:
  //   1  buffer 1            w = -0.5
  //   2  m = 1     (2/2)     w = -0.5 - (0.5 * 1 + 0.5)    = -1.5      buffer 0
  //   3  buffer 1            w = -2
  //   4  m = 1.5   (2/2)     w = -2 - (0.5 * 1.5 + 0.5)    = -3.25     buffer 0
  const auto rule = MakeDelayedNesterov({1, 0.5f, 0, 2});
  float w = 0, m = 0, buffer = 0;
  float* const states[] = {&m, &buffer};
  const float u = 1;
  const float values[] = {-0.5f, -1.5f, -2, -3.25f};
  const float means[] = {0, 1, 1, 1.5f};
  const float buffers[] = {1, 0, 1, 0};
  for (int i = 0; i < 4; ++i) {
    Update update;
    update.number = i + 1;
    rule->Apply(update, &u, &w, &w, states, 1);
    CHECK(w == values[i]);
    CHECK(m == means[i]);
    CHECK(buffer == buffers[i]);
  }
}

TEST_CASE("taking momentum ahead of time moves it between updates, and none of it is lost",
          "[rule][outer]") {
  // Over the N updates from one momentum step to the next, c takes c mu m at each of N - 1 and
  // gives back as much at the step before.
  const auto at_once = MakeDelayedNesterov({0.7f, 0.9f, 0, 4});
  const auto spread = MakeDelayedNesterov({0.7f, 0.9f, 0.25f, 4});
  const std::vector<float> a = After(*at_once, 23), b = After(*spread, 23);
  for (int i = 0; i < 50; ++i) CHECK(a[i] == Approx(b[i]).margin(1e-5));
  CHECK(After(*at_once, 20) != After(*spread, 20));
}

TEST_CASE("a buffer that goes on under another interval weighs what it would have",
          "[rule][outer]") {
  // N = 4, mu 0.5, every u = 1, until m = 1.5 at the 8th and two more are in the buffer. With N = 2 these weigh
  // 1/4 each still, and the two until the next momentum step 1/2 each:
  //   12  m = 0.5 * 1.5 + 2/4 + 2/2 = 2.25
  const auto before = MakeNegated(MakeDelayedNesterov({1, 0.5f, 0, 4}));
  const auto now = MakeNegated(MakeDelayedNesterov({1, 0.5f, 0, 2}));
  CHECK(before->divisor(0) == now->divisor(0));
  float w = 0, m = 0, buffer = 0;
  float* const states[] = {&m, &buffer};
  const float u = -1;
  Update update;
  for (update.number = 1; update.number <= 10; ++update.number) {
    before->Apply(update, &u, &w, &w, states, 1);
  }
  CHECK(m == 1.5f);
  CHECK(buffer == 2);
  buffer *= now->divisor(1) / before->divisor(1);
  for (; update.number <= 12; ++update.number) now->Apply(update, &u, &w, &w, states, 1);
  CHECK(m == 2.25f);
  CHECK(buffer == 0);
}

TEST_CASE("negated twice is the rule itself", "[rule][outer]") {
  const auto twice = MakeNegated(MakeNegated(MakeSgd({0.1f, 0.9f, 0.01f})));
  REQUIRE(twice->state_count() == 1);
  CHECK(SameBits(After(*twice, 5), After(*MakeSgd({0.1f, 0.9f, 0.01f}), 5)));
}

}  // namespace
}  // namespace tessera
