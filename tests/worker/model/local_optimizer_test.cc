#include "worker/model/local_optimizer.h"

#include "common/rule/optimizer.h"
#include "tests/worker/model/model_fixture.h"

namespace tessera {
namespace {

v1::Optimizer SgdOf(double rate, double momentum, double decay) {
  v1::Optimizer optimizer;
  optimizer.mutable_sgd()->set_learning_rate(rate);
  optimizer.mutable_sgd()->set_momentum(momentum);
  optimizer.mutable_sgd()->set_weight_decay(decay);
  return optimizer;
}

template <typename Keys>
void SetAdam(Keys* keys) {
  keys->set_learning_rate(0.05);
  keys->set_beta1(0.8);
  keys->set_beta2(0.9);
  keys->set_epsilon(1e-3);
  keys->set_weight_decay(0.1);
}

// One of each number of states.
std::vector<v1::Optimizer> SomeOfEachKind() {
  std::vector<v1::Optimizer> all = {SgdOf(0.1, 0, 0.01), SgdOf(0.1, 0.9, 0.01)};
  all.emplace_back().mutable_adagrad()->set_learning_rate(0.1);
  all.back().mutable_adagrad()->set_epsilon(1e-3);
  v1::RmsProp& rmsprop = *all.emplace_back().mutable_rmsprop();
  rmsprop.set_learning_rate(0.01);
  rmsprop.set_alpha(0.9);
  rmsprop.set_epsilon(1e-3);
  rmsprop.set_momentum(0.5);
  SetAdam(all.emplace_back().mutable_adam());
  SetAdam(all.emplace_back().mutable_adamw());
  return all;
}

std::unique_ptr<LocalOptimizer> OptimizerOf(const v1::Optimizer& optimizer, Network& network,
                                            Backend& backend) {
  auto made = LocalOptimizer::Create(optimizer, network, backend);
  INFO(made.status());
  REQUIRE(made.ok());
  return std::move(*made);
}

void TrainStep(Network& network, const v1::Model& model, unsigned seed) {
  const Rows data(model, 4, seed);
  REQUIRE(network.steps().TrainStep(data.batch(), {}).ok());
}

Update UpdateAt(uint64_t number) {
  Update update;
  update.number = number;
  update.rate = 1.0f / static_cast<float>(number);
  return update;
}

}  // namespace

TEST_CASE("the local optimizer walks every parameter by PyTorch's rule, and forgets at a reset",
          "[optimizer]") {
  const v1::Model model = ModelOf("3 linear:2 softmax");
  const auto backend = Cpu();
  const auto network = NetworkOf(model, 4, *backend);
  SetRandom(*network, nullptr, 1);
  const auto optimizer = OptimizerOf(SgdOf(0.1, 0.9, 0.01), *network, *backend);
  std::vector<double> w(network->arrays().parameters().begin(),
                        network->arrays().parameters().end()),
      m(w.size(), 0.0);
  for (uint64_t step = 0; step < 6; ++step) {
    TrainStep(*network, model, static_cast<unsigned>(step));
    if (step == 3) {
      REQUIRE(optimizer->Reset().ok());
      std::fill(m.begin(), m.end(), 0.0);
    }
    REQUIRE(optimizer->Step({}).ok());
    for (size_t i = 0; i < w.size(); ++i) {
      m[i] = 0.9 * m[i] + network->arrays().gradients()[i] + 0.01 * w[i];
      w[i] -= 0.1 * m[i];
      REQUIRE(network->arrays().parameters()[i] == Approx(w[i]).epsilon(1e-5).margin(1e-6));
    }
  }
}

TEST_CASE("a worker's optimizer takes the very steps that a server's would", "[optimizer]") {
  const v1::Model model = ModelOf("5 linear:9 norm relu linear:3 softmax");
  const auto backend = Cpu(2);
  for (const v1::Optimizer& kind : SomeOfEachKind()) {
    CAPTURE(kind.ShortDebugString());
    const auto network = NetworkOf(model, 4, *backend);
    SetRandom(*network, nullptr, 1);
    const auto optimizer = OptimizerOf(kind, *network, *backend);
    const auto rule = MakeOptimizer(kind);
    REQUIRE(optimizer->states().size() == StateNames(kind).size());
    std::vector<float> w(network->arrays().parameters().begin(),
                         network->arrays().parameters().end());
    std::vector<std::vector<float>> states(rule->state_count(), std::vector<float>(w.size()));
    std::vector<float*> addresses;
    for (std::vector<float>& s : states) addresses.push_back(s.data());
    for (uint64_t number = 1; number <= 4; ++number) {
      TrainStep(*network, model, static_cast<unsigned>(number));
      REQUIRE(optimizer->Step(UpdateAt(number)).ok());
      rule->Apply(UpdateAt(number), network->arrays().gradients().data(), w.data(), w.data(),
                  addresses.data(), w.size());
    }
    CHECK(network->arrays().parameters() == absl::MakeConstSpan(w));
    for (size_t s = 0; s < states.size(); ++s) {
      CHECK(optimizer->states()[s] == absl::MakeConstSpan(states[s]));
    }
  }
}

TEST_CASE("a step goes on from the state that was written into its views", "[optimizer]") {
  const v1::Model model = ModelOf("3 linear:2 softmax");
  const auto backend = Cpu();
  for (const v1::Optimizer& kind : SomeOfEachKind()) {
    CAPTURE(kind.ShortDebugString());
    const auto first = NetworkOf(model, 4, *backend), second = NetworkOf(model, 4, *backend);
    SetRandom(*first, nullptr, 1);
    SetRandom(*second, nullptr, 1);
    const auto one = OptimizerOf(kind, *first, *backend);
    const auto other = OptimizerOf(kind, *second, *backend);
    TrainStep(*first, model, 1);
    REQUIRE(one->Step(UpdateAt(1)).ok());
    const absl::Span<float> from = first->arrays().parameters();
    std::copy(from.begin(), from.end(), second->arrays().parameters().begin());
    for (size_t s = 0; s < one->states().size(); ++s) {
      const absl::Span<float> state = one->states()[s];
      CHECK(std::any_of(state.begin(), state.end(), [](float x) { return x != 0; }));
      std::copy(state.begin(), state.end(), other->states()[s].begin());
    }
    TrainStep(*first, model, 2);
    TrainStep(*second, model, 2);
    REQUIRE(one->Step(UpdateAt(2)).ok());
    REQUIRE(other->Step(UpdateAt(2)).ok());
    CHECK(first->arrays().parameters() == second->arrays().parameters());
    REQUIRE(one->Reset().ok());
    for (const absl::Span<float> state : one->states()) {
      CHECK(std::all_of(state.begin(), state.end(), [](float x) { return x == 0; }));
    }
  }
}

TEST_CASE("what pads the parameters stays zero under every optimizer", "[optimizer]") {
  const v1::Model model = ModelOf("3 linear:2 softmax");
  const auto backend = Cpu();
  for (const v1::Optimizer& kind : SomeOfEachKind()) {
    CAPTURE(kind.ShortDebugString());
    const auto network = NetworkOf(model, 4, *backend);
    SetRandom(*network, nullptr, 1);
    const auto optimizer = OptimizerOf(kind, *network, *backend);
    for (uint64_t number = 1; number <= 3; ++number) {
      TrainStep(*network, model, static_cast<unsigned>(number));
      REQUIRE(optimizer->Step(UpdateAt(number)).ok());
    }
    // A weight of 6 and a bias of 2, each on a cache line of its own.
    REQUIRE(network->arrays().parameters().size() == 32);
    for (int i = 0; i < 32; ++i) {
      if (i < 6 || (i >= 16 && i < 18)) continue;
      CHECK(network->arrays().parameters()[i] == 0);
      for (const absl::Span<float> state : optimizer->states()) CHECK(state[i] == 0);
    }
  }
}

TEST_CASE("a job without an optimizer is refused", "[optimizer]") {
  const v1::Model model = ModelOf("3 linear:2 softmax");
  const auto backend = Cpu();
  const auto network = NetworkOf(model, 4, *backend);
  const absl::Status status = LocalOptimizer::Create(v1::Optimizer(), *network, *backend).status();
  CHECK(status.code() == absl::StatusCode::kInvalidArgument);
  CHECK(status.message() ==
        "train.optimizer: there is none, want sgd, adam, adamw, adagrad, rmsprop or muon");
}

}  // namespace tessera
