// Every optimizer that a job may name, held to PyTorch (reference_values.h).
#include "common/rule/optimizer.h"

#include <google/protobuf/text_format.h>

#include <catch2/catch.hpp>

#include "tests/common/rule/reference_values.h"

namespace tessera {
namespace {

v1::Optimizer Parsed(const std::string& text) {
  v1::Optimizer optimizer;
  REQUIRE(google::protobuf::TextFormat::ParseFromString(text, &optimizer));
  return optimizer;
}

// As in reference_values.py.
float Initial(int i) { return (static_cast<float>(i * 5 % 8) - 3.5f) / 4; }
float Gradient(int update, int i) {
  return (static_cast<float>((update * 37 + i * 17 + update * i * 5) % 64) - 31.5f) / 32;
}
float Rate(int update) { return static_cast<float>(1 + update % 4) / 4; }

void CheckClose(const std::vector<float>& got, const std::vector<double>& want) {
  REQUIRE(got.size() == want.size());
  for (size_t i = 0; i < got.size(); ++i) CHECK(got[i] == Approx(want[i]).epsilon(0).margin(1e-5));
}

}  // namespace

TEST_CASE("each optimizer follows PyTorch for 20 updates, its states too", "[rule][optimizer]") {
  for (const ReferenceCase& c : ReferenceCases()) {
    CAPTURE(c.name);
    const v1::Optimizer optimizer = Parsed(c.optimizer);
    const std::unique_ptr<UpdateRule> rule = MakeOptimizer(optimizer);
    const std::vector<std::string> names = StateNames(optimizer);
    REQUIRE(rule->state_count() == static_cast<int>(names.size()));
    REQUIRE(c.values.size() == names.size() + 1);
    std::vector<float> w, u(kReferenceEntries);
    for (int i = 0; i < kReferenceEntries; ++i) w.push_back(Initial(i));
    std::vector<std::vector<float>> states(names.size(), std::vector<float>(kReferenceEntries));
    std::vector<float*> addresses;
    for (std::vector<float>& s : states) addresses.push_back(s.data());
    for (int number = 1; number <= kReferenceUpdates; ++number) {
      // The gradient comes as the sum of four pushes.
      for (int i = 0; i < kReferenceEntries; ++i) u[i] = 4 * Gradient(number, i);
      Update update;
      update.scale = 0.25f;
      update.number = number;
      update.rate = Rate(number);
      rule->Apply(update, u.data(), w.data(), w.data(), addresses.data(), kReferenceEntries);
    }
    CheckClose(w, c.values[0].second);
    for (size_t s = 0; s < names.size(); ++s) {
      CAPTURE(names[s]);
      CHECK(names[s] == c.values[s + 1].first);
      CheckClose(states[s], c.values[s + 1].second);
    }
  }
}

TEST_CASE("states have names, and momentum 0 keeps none", "[rule][optimizer]") {
  using Names = std::vector<std::string>;
  CHECK(StateNames(Parsed("sgd { learning_rate: 1 }")).empty());
  CHECK(StateNames(Parsed("sgd { learning_rate: 1 nesterov: true }")).empty());
  CHECK(StateNames(Parsed("sgd { momentum: 0.5 }")) == Names{"momentum"});
  CHECK(StateNames(Parsed("adagrad {}")) == Names{"squares"});
  CHECK(StateNames(Parsed("adam {}")) == Names{"mean", "squares"});
  CHECK(StateNames(Parsed("adamw {}")) == Names{"mean", "squares"});
  CHECK(StateNames(Parsed("rmsprop {}")) == Names{"mean_squares"});
  CHECK(StateNames(Parsed("rmsprop { momentum: 0.5 }")) == Names{"mean_squares", "momentum"});
}

TEST_CASE("a momentum too small for f32 keeps no state and has no name", "[rule][optimizer]") {
  const v1::Optimizer optimizer = Parsed("sgd { learning_rate: 1 momentum: 1e-60 }");
  CHECK(MakeOptimizer(optimizer)->state_count() == 0);
  CHECK(StateNames(optimizer).empty());
}

}  // namespace tessera
