#include "common/rule/optimizer.h"

#include <cmath>
#include <utility>

#include "proto/job.pb.h"
#include "tests/kernels/conformance/backend_under_test.h"
#include "tests/kernels/conformance/factors.h"

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
  for (const double momentum : {0.0, 0.9}) {
    v1::RmsProp& rmsprop = *all.emplace_back().mutable_rmsprop();
    rmsprop.set_learning_rate(0.1);
    rmsprop.set_alpha(0.99);
    rmsprop.set_epsilon(1e-8);
    rmsprop.set_momentum(momentum);
    rmsprop.set_weight_decay(momentum / 10);
  }
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

// A weight's, with values that are not finite or will not be, when they are rounded.
std::vector<float> WeightValues(int64_t n) {
  std::vector<float> w = RandomValues(n, 1);
  const float special[] = {NAN, INFINITY, -INFINITY, 3.4e38f, -3.4e38f, 1e-40f, -0.0f};
  for (int i = 0; i < 7; ++i) w[(n - 1) * i / 6] = special[i];
  return w;
}

// Arrays for StepByProduct.
struct ProductStep {
  ProductStep(Backend& backend, const LinearShape& shape, int64_t shift = 0)
      : shape(shape),
        x(backend, Factor<Bf16>(shape.rows * shape.inputs, 2), shift),
        dy(backend, Factor<Bf16>(shape.rows * shape.outputs, 3), shift),
        weight(backend, WeightValues(shape.outputs * shape.inputs), shift),
        rounded(backend, shape.outputs * shape.inputs, shift) {}
  bool Queue(OptimizerKernel& kernel, const OptimizerNumbers* numbers) const {
    return kernel.StepByProduct(numbers, shape, x.data(), dy.data(), weight.data(), rounded.data());
  }
  LinearShape shape;
  DeviceArray<Bf16> x, dy;
  DeviceArray<float> weight;
  DeviceArray<Bf16> rounded;
};

// The gradient may be off by twice the (rows + 2) roundings of linear_test's bound, as tensor cores cut off where
// others round; then come its two factors, the decay's product, their sum, eta, its product and a difference.
void CheckProductStep(const ProductStep& step, const Update& update, float learning_rate,
                      float decay) {
  const auto& [rows, inputs, outputs] = step.shape;
  CAPTURE(rows, inputs, outputs, decay);
  const std::vector<float> before = WeightValues(outputs * inputs), got = step.weight.Read();
  const std::vector<Bf16> x = step.x.Read(), dy = step.dy.Read(), rounded = step.rounded.Read();
  const double eta = static_cast<double>(learning_rate) * update.rate, scale = update.scale;
  // Of large ones every fifth output, in another place of each tile.
  const int64_t every = outputs > 512 ? 5 : 1;
  std::vector<double> gradient(inputs), magnitude(inputs);
  int64_t wrong = 0, rounded_wrong = 0;
  for (int64_t o = 0; o < outputs; o += every) {
    std::fill(gradient.begin(), gradient.end(), 0.0);
    std::fill(magnitude.begin(), magnitude.end(), 0.0);
    for (int64_t row = 0; row < rows; ++row) {
      const double factor = Value(dy[row * outputs + o]);
      for (int64_t i = 0; i < inputs; ++i) {
        const double product = factor * Value(x[row * inputs + i]);
        gradient[i] += product;
        magnitude[i] += std::fabs(product);
      }
    }
    for (int64_t i = 0; i < inputs; ++i) {
      const double w = before[o * inputs + i], value = got[o * inputs + i];
      const double g = scale * gradient[i] + decay * w, want = w - eta * g;
      const double off = 2 * (rows + 2) * kRoundoff * magnitude[i];
      const double bound =
          eta * scale * off +
          7 * kRoundoff * (std::fabs(w) + eta * (scale * magnitude[i] + decay * std::fabs(w)));
      if (std::isnan(want)) {
        wrong += std::isnan(value) ? 0 : 1;
      } else {
        wrong += value == want || std::fabs(value - want) <= bound + 1e-44 ? 0 : 1;
      }
    }
  }
  for (int64_t i = 0; i < outputs * inputs; ++i) {
    rounded_wrong += rounded[i].bits == RoundToBf16(got[i]).bits ? 0 : 1;
  }
  REQUIRE(wrong == 0);
  REQUIRE(rounded_wrong == 0);
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

TEST_CASE("a weight steps by its product as by its gradient", "[product_step]") {
  const auto backend = BackendUnderTest(1);
  // One tile and parts of it, stages that are not whole, edges in both directions, more tiles than a GPU has
  // multiprocessors, several for each of them; the last two again with weights that a job's rule takes.
  const std::vector<LinearShape> shapes = {
      {1, 8, 8},        {3, 8, 128},       {40, 128, 128},   {64, 128, 264},   {129, 136, 120},
      {513, 264, 136},  {200, 1000, 72},   {70, 40, 1416},   {40, 1536, 1280}, {300, 2312, 136},
      {64, 4104, 2056}, {512, 1032, 1024}, {513, 1032, 1024}};
  Update update;
  update.scale = 0.5f;
  update.rate = 0.25f;
  size_t taken = 0, asked = 0;
  for (const LinearShape& shape : shapes) {
    for (const double decay : {0.0, 0.01}) {
      if (decay > 0 && shape.inputs * shape.outputs >= 1 << 20) continue;
      const v1::Optimizer sgd = Sgd(0, decay, false);
      const SgdOptions options = SgdOptionsOf(sgd.sgd());
      const auto kernel = backend->vector().MakeOptimizer(sgd);
      const DeviceArray<OptimizerNumbers> numbers(*backend, {NumbersOf(sgd, update)});
      const ProductStep step(*backend, shape);
      ++asked;
      if (!step.Queue(*kernel, numbers.data())) continue;
      ++taken;
      CheckProductStep(step, update, options.learning_rate, options.weight_decay);
      const ProductStep again(*backend, shape);
      REQUIRE(again.Queue(*kernel, numbers.data()));
      const std::vector<Bf16> first = step.rounded.Read(), second = again.rounded.Read();
      REQUIRE(std::memcmp(first.data(), second.data(), first.size() * sizeof(Bf16)) == 0);
    }
  }
  REQUIRE((taken == 0 || taken == asked));
  if (taken == 0 && !backend->gpu().empty()) WARN("no steps by products on " << backend->gpu());
}

TEST_CASE("a step by a product that there is not leaves everything as it was", "[product_step]") {
  const auto backend = BackendUnderTest(1);
  const auto refuses = [&](const v1::Optimizer& optimizer, const ProductStep& step) {
    CAPTURE(optimizer.ShortDebugString(), step.shape.rows, step.shape.inputs, step.shape.outputs);
    const auto kernel = backend->vector().MakeOptimizer(optimizer);
    const DeviceArray<OptimizerNumbers> numbers(*backend, {NumbersOf(optimizer, {})});
    const std::vector<float> before = step.weight.Read();
    CHECK_FALSE(step.Queue(*kernel, numbers.data()));
    const std::vector<float> after = step.weight.Read();
    CHECK(std::memcmp(before.data(), after.data(), before.size() * sizeof(float)) == 0);
    for (const Bf16 each : step.rounded.Read()) CHECK(each.bits == 0);
  };
  for (const v1::Optimizer& optimizer : AllOptimizers()) {
    if (optimizer.has_sgd() && optimizer.sgd().momentum() == 0) continue;
    refuses(optimizer, ProductStep(*backend, {16, 64, 32}));
  }
  const v1::Optimizer sgd = Sgd(0, 0, false);
  refuses(sgd, ProductStep(*backend, {16, 60, 32}));
  refuses(sgd, ProductStep(*backend, {16, 64, 36}));
  refuses(sgd, ProductStep(*backend, {0, 64, 32}));
  refuses(sgd, ProductStep(*backend, {16, 64, 32}, /*shift=*/1));
  const ProductStep step(*backend, {16, 64, 32});
  const auto kernel = backend->vector().MakeOptimizer(sgd);
  const DeviceArray<OptimizerNumbers> numbers(*backend, {NumbersOf(sgd, {})});
  CHECK_FALSE(kernel->StepByProduct(numbers.data(), step.shape, step.x.data(), step.dy.data(),
                                    step.weight.data(), nullptr));
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
