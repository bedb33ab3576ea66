#include "common/rule/optimizer.h"

#include <cmath>
#include <utility>

#include "proto/job.pb.h"
#include "tests/kernels/conformance/backend_under_test.h"

namespace tessera {
namespace {

v1::Optimizer Sgd(double momentum, double decay, bool nesterov) {
  v1::Optimizer optimizer;
  optimizer.mutable_sgd()->set_learning_rate(0.1);
  optimizer.mutable_sgd()->set_momentum(momentum);
  optimizer.mutable_sgd()->set_weight_decay(decay);
  optimizer.mutable_sgd()->set_nesterov(nesterov);
  return optimizer;
}

template <typename Keys>
void SetAdam(double beta1, double beta2, double epsilon, double decay, Keys* keys) {
  keys->set_learning_rate(0.05);
  keys->set_beta1(beta1);
  keys->set_beta2(beta2);
  keys->set_epsilon(epsilon);
  keys->set_weight_decay(decay);
}

std::vector<v1::Optimizer> AllOptimizers() {
  std::vector<v1::Optimizer> all = {Sgd(0, 0, false), Sgd(0, 0.01, true), Sgd(0.9, 0.01, false),
                                    Sgd(0.9, 0, true)};
  all.emplace_back().mutable_adagrad()->set_learning_rate(0.1);
  all.back().mutable_adagrad()->set_epsilon(1e-10);
  all.back().mutable_adagrad()->set_weight_decay(0.05);
  SetAdam(0.9, 0.999, 1e-8, 0, all.emplace_back().mutable_adam());
  SetAdam(0.7, 0.9, 0.1, 0.2, all.emplace_back().mutable_adam());
  SetAdam(0.9, 0.999, 1e-8, 0.2, all.emplace_back().mutable_adamw());
  return all;
}

// The roundings of a few operations, of quotients and roots among them.
void RequireClose(const std::vector<float>& got, const std::vector<float>& want) {
  REQUIRE(got.size() == want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    REQUIRE(std::fabs(got[i] - want[i]) <= 1e-6 * (1 + std::fabs(want[i])));
  }
}

}  // namespace

TEST_CASE("every optimizer does on the device what its rule does on the host", "[optimizer]") {
  const auto backend = BackendUnderTest(GENERATE(from_range(ThreadsUnderTest())));
  // The weights and states, and the gradient.
  const auto [misaligned, g_misaligned] =
      GENERATE(std::pair(0, 0), std::pair(0, 1), std::pair(1, 0), std::pair(1, 1));
  for (const v1::Optimizer& optimizer : AllOptimizers()) {
    const auto rule = MakeOptimizer(optimizer);
    const auto kernel = backend->vector().MakeOptimizer(optimizer);
    for (const int64_t n : Sizes()) {
      CAPTURE(optimizer.ShortDebugString(), n, misaligned, g_misaligned);
      std::vector<float> w = RandomValues(n, 1), first(n), second(n);
      const DeviceArray<float> dev_w(*backend, w, misaligned),
          dev_first(*backend, n, 2 * misaligned), dev_second(*backend, n, 3 * misaligned);
      float* const states[] = {first.data(), second.data()};
      float* const dev_states[] = {dev_first.data(), dev_second.data()};
      for (unsigned number = 1; number <= 3; ++number) {
        Update update;
        update.scale = 0.5f;
        update.number = number;
        update.rate = 1.0f / static_cast<float>(number);
        const std::vector<float> g = RandomValues(n, 10 + number);
        const DeviceArray<float> dev_g(*backend, g, g_misaligned);
        rule->Apply(update, g.data(), w.data(), w.data(), states, n);
        const DeviceArray<OptimizerNumbers> numbers(*backend, {NumbersOf(optimizer, update)});
        kernel->Step(numbers.data(), n, dev_g.data(), dev_states, dev_w.data(), nullptr);
        REQUIRE(dev_g.Read() == g);
      }
      RequireClose(dev_w.Read(), w);
      RequireClose(dev_first.Read(), first);
      RequireClose(dev_second.Read(), second);
    }
  }
}

TEST_CASE("an optimizer that rounds what it writes changes nothing else", "[optimizer]") {
  const auto backend = BackendUnderTest(GENERATE(from_range(ThreadsUnderTest())));
  const int64_t misaligned = GENERATE(0, 1, 4);
  for (const v1::Optimizer& optimizer : AllOptimizers()) {
    const auto kernel = backend->vector().MakeOptimizer(optimizer);
    for (const int64_t n : Sizes()) {
      CAPTURE(optimizer.ShortDebugString(), n, misaligned);
      const std::vector<float> g = RandomValues(n, 2);
      const DeviceArray<float> dev_g(*backend, g);
      const DeviceArray<OptimizerNumbers> numbers(*backend, {NumbersOf(optimizer, {0.5f, 1, 1})});
      std::vector<float> w[2], states[2];
      for (const bool rounds : {false, true}) {
        const DeviceArray<float> dev_w(*backend, RandomValues(n, 1)), first(*backend, n),
            second(*backend, n);
        // With a guard behind it.
        const DeviceArray<Bf16> rounded(*backend, std::vector<Bf16>(n + 1, Bf16{0x1234}),
                                        misaligned);
        const DeviceArray<Bf16> want(*backend, n);
        float* const dev_states[] = {first.data(), second.data()};
        for (int step = 0; step < 2; ++step) {
          kernel->Step(numbers.data(), n, dev_g.data(), dev_states, dev_w.data(),
                       rounds ? rounded.data() : nullptr);
        }
        backend->vector().Round(n, dev_w.data(), want.data());
        w[rounds] = dev_w.Read();
        states[rounds] = first.Read();
        const std::vector<Bf16> got = rounded.Read(), rounding = want.Read();
        REQUIRE(got[n].bits == 0x1234);
        for (int64_t i = 0; rounds && i < n; ++i) REQUIRE(got[i].bits == rounding[i].bits);
      }
      REQUIRE(w[0] == w[1]);
      REQUIRE(states[0] == states[1]);
    }
  }
}

// torch.optim.SGD([w], lr=0.1, momentum=0.9, weight_decay=0.01), gradient 0.5 each time, worked by
// hand:
//   g' = 0.51,      m = 0.51,        w = 0.949
//   g' = 0.50949,   m = 0.96849,     w = 0.852151
//   g' = 0.5085215, m = 1.38016251,  w = 0.714134749
TEST_CASE("sgd with momentum and decay walks PyTorch's sequence", "[optimizer]") {
  const auto backend = BackendUnderTest(1);
  const DeviceArray<float> g(*backend, std::vector<float>(33, 0.5f)), m(*backend, 33),
      w(*backend, std::vector<float>(33, 1.0f));
  const float moments[] = {0.51f, 0.96849f, 1.38016251f};
  const float weights[] = {0.949f, 0.852151f, 0.714134749f};
  const v1::Optimizer sgd = Sgd(0.9, 0.01, false);
  const auto kernel = backend->vector().MakeOptimizer(sgd);
  const DeviceArray<OptimizerNumbers> numbers(*backend, {NumbersOf(sgd, {})});
  float* const states[] = {m.data()};
  for (int step = 0; step < 3; ++step) {
    kernel->Step(numbers.data(), 33, g.data(), states, w.data(), nullptr);
    for (const float got : m.Read()) REQUIRE(got == Approx(moments[step]).epsilon(1e-6));
    for (const float got : w.Read()) REQUIRE(got == Approx(weights[step]).epsilon(1e-6));
  }
}

}  // namespace tessera
