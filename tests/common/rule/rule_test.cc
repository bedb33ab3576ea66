// One battery for every update rule: held to its formula in double precision, in place and out of
// place, over lengths that leave every vector width a rest.
#include "common/rule/rule.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/base/philox.h"
#include "common/rule/adagrad.h"
#include "common/rule/adam.h"
#include "common/rule/add.h"
#include "common/rule/delayed_nesterov.h"
#include "common/rule/negated.h"
#include "common/rule/rmsprop.h"
#include "common/rule/sgd.h"

namespace tessera {
namespace {

// The new w of one entry. u is scaled already, s are its states.
using Formula = std::function<double(const Update& update, double u, double w, double* s)>;

struct RuleCase {
  std::string name;
  std::unique_ptr<UpdateRule> rule;
  Formula formula;
  int states = 0;
};

RuleCase Sgd(const std::string& name, const SgdOptions& o) {
  const Formula formula = [o](const Update& update, double u, double w, double* s) {
    const double g = u + o.weight_decay * w;
    s[0] = o.momentum * s[0] + g;
    const double along = o.nesterov ? g + o.momentum * s[0] : s[0];
    return w - o.learning_rate * update.rate * along;
  };
  return {name, MakeSgd(o), formula, o.momentum == 0 ? 0 : 1};
}

RuleCase Adagrad(const std::string& name, const AdagradOptions& o) {
  const Formula formula = [o](const Update& update, double u, double w, double* s) {
    const double g = u + o.weight_decay * w;
    s[0] += g * g;
    return w - o.learning_rate * update.rate * g / (std::sqrt(s[0]) + o.epsilon);
  };
  return {name, MakeAdagrad(o), formula, 1};
}

RuleCase Adam(const std::string& name, const AdamOptions& o) {
  const Formula formula = [o](const Update& update, double u, double w, double* s) {
    const double eta = o.learning_rate * update.rate;
    const double g = o.decoupled ? u : u + o.weight_decay * w;
    const double decayed = o.decoupled ? w * (1 - eta * o.weight_decay) : w;
    s[0] = o.beta1 * s[0] + (1 - o.beta1) * g;
    s[1] = o.beta2 * s[1] + (1 - o.beta2) * g * g;
    const double mean = s[0] / (1 - std::pow(o.beta1, update.number));
    const double square = s[1] / (1 - std::pow(o.beta2, update.number));
    return decayed - eta * mean / (std::sqrt(square) + o.epsilon);
  };
  return {name, MakeAdam(o), formula, 2};
}

RuleCase RmsProp(const std::string& name, const RmsPropOptions& o) {
  const Formula formula = [o](const Update& update, double u, double w, double* s) {
    const double g = u + o.weight_decay * w;
    s[0] = o.alpha * s[0] + (1 - o.alpha) * g * g;
    const double along = g / (std::sqrt(s[0]) + o.epsilon);
    s[1] = o.momentum * s[1] + along;
    return w - o.learning_rate * update.rate * s[1];
  };
  return {name, MakeRmsProp(o), formula, o.momentum == 0 ? 1 : 2};
}

// As Algorithm 3 of arXiv 2401.09135 counts.
RuleCase DelayedNesterov(const std::string& name, const DelayedNesterovOptions& o) {
  const Formula formula = [o](const Update& update, double u, double w, double* s) {
    const double eta = o.learning_rate * update.rate, mu = o.momentum, c = o.ahead;
    const double n = static_cast<double>(o.interval);
    s[1] += u;
    if (update.number % o.interval != 0) return w - eta * (c * mu * s[0] + u / n);
    s[0] = mu * s[0] + s[1] / n;
    s[1] = 0;
    return w - eta * ((1 - c * n + c) * mu * s[0] + u / n);
  };
  return {name, MakeDelayedNesterov(o), formula, o.momentum == 0 ? 0 : 2};
}

RuleCase Negated(RuleCase c) {
  const Formula formula = [positive = c.formula](const Update& update, double u, double w,
                                                 double* s) { return positive(update, -u, w, s); };
  return {c.name + ", negated", MakeNegated(std::move(c.rule)), formula, c.states};
}

// All whose steps follow the learning rate.
std::vector<RuleCase> Optimizers() {
  std::vector<RuleCase> cases;
  cases.push_back(Sgd("sgd", {0.1f, 0, 0}));
  cases.push_back(Sgd("sgd, decay", {0.1f, 0, 0.01f}));
  cases.push_back(Sgd("sgd, momentum", {0.05f, 0.9f, 0}));
  cases.push_back(Sgd("sgd, momentum and decay", {0.05f, 0.9f, 0.001f}));
  cases.push_back(Sgd("sgd, nesterov and decay", {0.05f, 0.9f, 0.001f, true}));
  cases.push_back(Sgd("sgd, nesterov without momentum", {0.1f, 0, 0.1f, true}));
  cases.push_back(Sgd("outer nesterov", {0.7f, 0.9f, 0, true}));
  cases.push_back(Negated(Sgd("outer nesterov", {0.7f, 0.9f, 0, true})));
  cases.push_back(Adagrad("adagrad", {0.1f, 1e-10f, 0}));
  cases.push_back(Adagrad("adagrad, decay", {0.1f, 0.1f, 0.05f}));
  cases.push_back(Adam("adam", {0.05, 0.9, 0.999, 1e-8, 0, false}));
  cases.push_back(Adam("adam, decay", {0.05, 0.8, 0.9, 0.1, 0.1, false}));
  cases.push_back(Adam("adam without memory", {0.05, 0, 0, 0.1, 0, false}));
  cases.push_back(Adam("adamw", {0.05, 0.9, 0.999, 1e-8, 0.1, true}));
  cases.push_back(RmsProp("rmsprop", {0.01f, 0.99, 1e-8f, 0, 0}));
  cases.push_back(RmsProp("rmsprop, decay and momentum", {0.05f, 0.9, 0.1f, 0.05f, 0.8f}));
  cases.push_back(DelayedNesterov("delayed nesterov", {0.7f, 0.9f, 0, 4}));
  cases.push_back(DelayedNesterov("delayed nesterov, ahead", {0.7f, 0.9f, 0.25f, 3}));
  cases.push_back(DelayedNesterov("delayed nesterov, interval 1", {0.7f, 0.9f, 0, 1}));
  cases.push_back(DelayedNesterov("delayed nesterov without momentum", {0.7f, 0, 0, 4}));
  cases.push_back(Negated(DelayedNesterov("delayed nesterov", {0.7f, 0.9f, 0, 4})));
  return cases;
}

std::vector<RuleCase> AllRules() {
  std::vector<RuleCase> cases = Optimizers();
  const Formula add = [](const Update&, double u, double w, double*) { return w + u; };
  cases.push_back({"add", MakeAdd(), add, 0});
  return cases;
}

float Uniform(uint64_t a, uint64_t b) {
  return 2 * UnitFloat(Philox(1, Stream::kDropout, a, b)[0]) - 1;
}

std::vector<float> Values(uint64_t a, int count) {
  std::vector<float> values(count);
  for (int i = 0; i < count; ++i) values[i] = Uniform(a, i);
  return values;
}

// Parameters under training, with the state that their rule keeps.
struct Trained {
  Trained(const UpdateRule& rule, std::vector<float> values, float state = 0)
      : rule(rule),
        w(std::move(values)),
        states(rule.state_count(), std::vector<float>(w.size(), state)) {}

  std::vector<float*> StatesAt(int64_t begin) {
    std::vector<float*> addresses;
    for (std::vector<float>& s : states) addresses.push_back(s.data() + begin);
    return addresses;
  }
  void InPlace(const Update& update, const std::vector<float>& u) {
    rule.Apply(update, u.data(), w.data(), w.data(), StatesAt(0).data(), w.size());
  }
  void Beside(const Update& update, const std::vector<float>& u) {
    std::vector<float> out(w.size(), -9);
    rule.Apply(update, u.data(), w.data(), out.data(), StatesAt(0).data(), w.size());
    w = out;
  }
  void InRuns(const Update& update, const std::vector<float>& u, int64_t run) {
    const int64_t count = w.size();
    for (int64_t begin = 0; begin < count; begin += run) {
      rule.Apply(update, u.data() + begin, w.data() + begin, w.data() + begin,
                 StatesAt(begin).data(), std::min(run, count - begin));
    }
  }
  bool operator==(const Trained& other) const {
    const auto same = [](const std::vector<float>& a, const std::vector<float>& b) {
      return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * 4) == 0;
    };
    return same(w, other.w) &&
           std::equal(states.begin(), states.end(), other.states.begin(), other.states.end(), same);
  }

  const UpdateRule& rule;
  std::vector<float> w;
  std::vector<std::vector<float>> states;
};

Update UpdateAt(int number) {
  Update update;
  update.scale = 0.25f;
  update.number = number;
  update.rate = 0.25f * static_cast<float>(1 + number % 4);
  return update;
}

TEST_CASE("every rule follows its formula for 20 updates", "[rule]") {
  for (const RuleCase& c : AllRules()) {
    REQUIRE(c.rule->state_count() == c.states);
    for (const int count : {0, 1, 3, 7, 8, 15, 17, 33, 100, 1025}) {
      CAPTURE(c.name, count);
      Trained got(*c.rule, Values(0, count));
      std::vector<double> want(got.w.begin(), got.w.end());
      std::vector<double> states(2 * count, 0);
      for (int number = 1; number <= 20; ++number) {
        const std::vector<float> u = Values(number, count);
        got.InPlace(UpdateAt(number), u);
        for (int i = 0; i < count; ++i) {
          want[i] = c.formula(UpdateAt(number), 0.25 * u[i], want[i], &states[2 * i]);
        }
      }
      for (int i = 0; i < count; ++i) {
        REQUIRE(std::abs(got.w[i] - want[i]) < 1e-5);
        for (int s = 0; s < c.states; ++s) {
          REQUIRE(std::abs(got.states[s][i] - states[2 * i + s]) < 1e-5);
        }
      }
    }
  }
}

TEST_CASE("a rule writes the same bits beside its input as in place, whole or in runs", "[rule]") {
  for (const RuleCase& c : AllRules()) {
    CAPTURE(c.name);
    const int count = 203;
    Trained place(*c.rule, Values(0, count)), beside = place, runs = place, single = place;
    for (int number = 1; number <= 9; ++number) {
      const std::vector<float> u = Values(number, count);
      place.InPlace(UpdateAt(number), u);
      beside.Beside(UpdateAt(number), u);
      runs.InRuns(UpdateAt(number), u, 29);
      single.InRuns(UpdateAt(number), u, 1);
    }
    CHECK(place == beside);
    CHECK(place == runs);
    CHECK(place == single);
  }
}

TEST_CASE("at rate 0 the parameters stay, and the state moves as at any other rate", "[rule]") {
  for (const RuleCase& c : Optimizers()) {
    CAPTURE(c.name);
    const std::vector<float> w = Values(0, 100);
    for (int number = 1; number <= 8; ++number) {
      Trained stopped(*c.rule, w, 0.5f), moving = stopped;
      Update update = UpdateAt(number);
      moving.InPlace(update, Values(number, 100));
      update.rate = 0;
      stopped.InPlace(update, Values(number, 100));
      CHECK(stopped.w == w);
      CHECK(moving.w != w);
      CHECK(stopped.states == moving.states);
    }
  }
}

// Elsewhere the rule that says so would leave out a step that it takes.
TEST_CASE("only a rule that changes nothing but -0 where an update is zero says that it keeps",
          "[rule]") {
  std::vector<float> start = Values(4, 100);
  start[7] = 0;
  int keeping = 0;
  for (const RuleCase& c : AllRules()) {
    INFO(c.name);
    Trained trained(*c.rule, start);
    if (!c.rule->keeps_where_zero()) continue;
    ++keeping;
    REQUIRE(c.states == 0);
    for (int number = 1; number <= 4; ++number) {
      trained.InPlace(UpdateAt(number),
                      std::vector<float>(start.size(), number % 2 ? 0.0f : -0.0f));
      REQUIRE(trained == Trained(*c.rule, start));
    }
  }
  CHECK(keeping == 1);
  CHECK(MakeAdd()->keeps_where_zero());
}

TEST_CASE("a larger rate is a larger step, and add knows no rate", "[rule]") {
  Update half = UpdateAt(3), whole = half;
  half.rate = 0.5f;
  whole.rate = 1;
  const std::vector<float> zeros(100, 0.0f), u = Values(1, 100);
  for (const RuleCase& c : Optimizers()) {
    CAPTURE(c.name);
    // From w = 0, where no decay changes the direction.
    Trained slow(*c.rule, zeros), fast = slow;
    slow.InPlace(half, u);
    fast.InPlace(whole, u);
    for (int i = 0; i < 100; ++i) REQUIRE(fast.w[i] == Approx(2 * slow.w[i]));
  }
  const auto add = MakeAdd();
  Trained slow(*add, zeros), fast = slow;
  slow.InPlace(half, u);
  fast.InPlace(whole, u);
  CHECK(slow == fast);
}

TEST_CASE("entries that have seen no gradient stay, even with an epsilon that f32 lacks",
          "[rule]") {
  std::vector<RuleCase> cases = Optimizers();
  cases.push_back(Adagrad("adagrad, no epsilon", {0.1f, 0, 0}));
  cases.push_back(RmsProp("rmsprop, no epsilon", {0.1f, 0.99, 0, 0, 0}));
  cases.push_back(Adam("adam, no epsilon", {0.05, 0.9, 0.999, 1e-60, 0, false}));
  for (const RuleCase& c : cases) {
    CAPTURE(c.name);
    Trained trained(*c.rule, std::vector<float>(33, 0.0f));
    for (int number = 1; number <= 5; ++number) {
      trained.InPlace(UpdateAt(number), std::vector<float>(33, 0.0f));
    }
    CHECK(trained.w == std::vector<float>(33, 0.0f));
  }
}

TEST_CASE("rmsprop takes squares that averaging left below zero for zero", "[rule][rmsprop]") {
  const auto rule = MakeRmsProp({0.1f, 0.999, 1e-3f, 0, 0.9f});
  Trained below(*rule, Values(0, 33)), at(*rule, Values(0, 33));
  below.states[0].assign(33, -1e-9f);
  const std::vector<float> u(33, 0.0f);
  below.InPlace(UpdateAt(5), u);
  at.InPlace(UpdateAt(5), u);
  CHECK(below.w == at.w);
}

TEST_CASE("adam takes squares that averaging left below zero for zero", "[rule][adam]") {
  const auto rule = MakeAdam({0.1, 0.9, 0.999, 1e-3, 0, false});
  Trained below(*rule, Values(0, 33)), at(*rule, Values(0, 33));
  below.states[1].assign(33, -1e-9f);
  const std::vector<float> u(33, 0.0f);
  below.InPlace(UpdateAt(5), u);
  at.InPlace(UpdateAt(5), u);
  CHECK(below.w == at.w);
}

TEST_CASE("adam's correction fades: after a million updates it takes the step without it",
          "[rule][adam]") {
  const auto rule = MakeAdam({0.1, 0.9, 0.999, 1e-8, 0, false});
  Trained trained(*rule, {0.0f});
  trained.states[0][0] = 0.5f;
  trained.states[1][0] = 0.25f;
  Update update;
  update.number = 1000000;
  trained.InPlace(update, {0.5f});
  CHECK(trained.w[0] == Approx(-0.1).epsilon(1e-6));
}

TEST_CASE("momentum has PyTorch's convention", "[rule][sgd]") {
  // torch.optim.SGD([w], lr=0.1, momentum=0.9, weight_decay=0.01), w = 1, gradients 1, 2, -1.
  // The first buffer is the gradient itself, not (1 - momentum) of it,
  // and the rate multiplies the buffer.
  const std::unique_ptr<UpdateRule> rule = MakeSgd({0.1f, 0.9f, 0.01f});
  Trained trained(*rule, {1.0f});
  const float gradients[] = {1, 2, -1};
  const double buffers[] = {1.01, 2.91799, 1.63226301};
  const double values[] = {0.899, 0.607201, 0.4439747};
  for (int i = 0; i < 3; ++i) {
    trained.InPlace({}, {gradients[i]});
    CHECK(trained.states[0][0] == Approx(buffers[i]).epsilon(1e-5));
    CHECK(trained.w[0] == Approx(values[i]).epsilon(1e-5));
  }
}

}  // namespace
}  // namespace tessera
