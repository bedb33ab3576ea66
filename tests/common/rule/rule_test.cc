// One battery for every update rule: held to its formula in double precision, in place and out of
// place, over lengths that leave every vector width a rest.
#include "common/rule/rule.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/base/philox.h"
#include "common/rule/add.h"
#include "common/rule/sgd.h"

namespace tessera {
namespace {

// One step of one entry: the formula, its state in `m`.
using Formula = std::function<double(double u, double w, double& m)>;

struct RuleCase {
  std::string name;
  std::unique_ptr<UpdateRule> rule;
  Formula formula;
};

Formula Sgd(double eta, double mu, double decay) {
  return [=](double u, double w, double& m) {
    m = mu * m + u + decay * w;
    return w - eta * m;
  };
}

std::vector<RuleCase> AllRules() {
  std::vector<RuleCase> cases;
  const auto sgd = [&](const char* name, float eta, float mu, float decay) {
    cases.push_back({name, MakeSgd({eta, mu, decay}), Sgd(eta, mu, decay)});
  };
  cases.push_back({"add", MakeAdd(), [](double u, double w, double&) { return w + u; }});
  sgd("sgd", 0.1f, 0, 0);
  sgd("sgd decay", 0.1f, 0, 0.01f);
  sgd("sgd momentum", 0.05f, 0.9f, 0);
  sgd("sgd momentum decay", 0.05f, 0.9f, 0.001f);
  return cases;
}

float Uniform(uint64_t a, uint64_t b) {
  return 2 * UnitFloat(Philox(1, Stream::kDropout, a, b)[0]) - 1;
}

TEST_CASE("every rule follows its formula for 20 steps", "[rule]") {
  for (const RuleCase& c : AllRules()) {
    for (const int count : {0, 1, 3, 7, 8, 15, 17, 33, 100, 1025}) {
      CAPTURE(c.name, count);
      std::vector<float> w(count);
      for (int i = 0; i < count; ++i) w[i] = Uniform(0, i);
      std::vector<double> want(w.begin(), w.end());
      std::vector<double> m(count, 0);
      std::vector<std::vector<float>> state(c.rule->state_count(), std::vector<float>(count, 0));
      std::vector<float*> pointers;
      for (std::vector<float>& s : state) pointers.push_back(s.data());
      const float scale = 0.25f;
      for (int step = 1; step <= 20; ++step) {
        std::vector<float> u(count);
        for (int i = 0; i < count; ++i) u[i] = Uniform(step, i);
        c.rule->Apply(u.data(), scale, w.data(), w.data(), pointers.data(), count);
        for (int i = 0; i < count; ++i) want[i] = c.formula(0.25 * u[i], want[i], m[i]);
      }
      for (int i = 0; i < count; ++i) REQUIRE(std::abs(w[i] - want[i]) < 1e-5);
    }
  }
}

TEST_CASE("a rule writes the same bits beside its input as in place, whole or in runs", "[rule]") {
  for (const RuleCase& c : AllRules()) {
    CAPTURE(c.name);
    const int count = 203;
    std::vector<float> u(count), in(count), beside(count, -9), runs(count, -9);
    for (int i = 0; i < count; ++i) {
      u[i] = Uniform(1, i);
      in[i] = Uniform(2, i);
    }
    std::vector<float> place = in;
    std::vector<float> m1(count, 0.5f), m2(count, 0.5f), m3(count, 0.5f);
    float* const s1[] = {m1.data()};
    float* const s2[] = {m2.data()};
    c.rule->Apply(u.data(), 0.3f, in.data(), beside.data(), s1, count);
    c.rule->Apply(u.data(), 0.3f, place.data(), place.data(), s2, count);
    for (int begin = 0; begin < count; begin += 29) {
      float* const s3[] = {m3.data() + begin};
      c.rule->Apply(u.data() + begin, 0.3f, in.data() + begin, runs.data() + begin, s3,
                    std::min(29, count - begin));
    }
    CHECK(std::memcmp(beside.data(), place.data(), count * 4) == 0);
    CHECK(std::memcmp(beside.data(), runs.data(), count * 4) == 0);
    CHECK(m1 == m2);
    CHECK(m1 == m3);
  }
}

TEST_CASE("momentum has PyTorch's convention", "[rule][sgd]") {
  // torch.optim.SGD([w], lr=0.1, momentum=0.9, weight_decay=0.01), w = 1, gradients 1, 2, -1.
  // The first buffer is the gradient itself, not (1 - momentum) of it,
  // and the rate multiplies the buffer.
  const std::unique_ptr<UpdateRule> rule = MakeSgd({0.1f, 0.9f, 0.01f});
  float w = 1;
  float m = 0;
  float* const state[] = {&m};
  const float gradients[] = {1, 2, -1};
  const double buffers[] = {1.01, 2.91799, 1.63226301};
  const double values[] = {0.899, 0.607201, 0.4439747};
  for (int i = 0; i < 3; ++i) {
    rule->Apply(&gradients[i], 1, &w, &w, state, 1);
    CHECK(m == Approx(buffers[i]).epsilon(1e-5));
    CHECK(w == Approx(values[i]).epsilon(1e-5));
  }
}

TEST_CASE("only momentum keeps state", "[rule]") {
  CHECK(MakeAdd()->state_count() == 0);
  CHECK(MakeSgd({0.1f, 0, 0.5f})->state_count() == 0);
  CHECK(MakeSgd({0.1f, 0.5f, 0})->state_count() == 1);
}

}  // namespace
}  // namespace tessera
