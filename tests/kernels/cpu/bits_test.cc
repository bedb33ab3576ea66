// The CPU backend's own kernels give the same bits on every CPU and with any number of threads:
// that is what lets workers on different machines agree. (Matrix products are oneDNN's and promise
// it for one machine only.)
#include "kernels/devices.h"
#include "tests/kernels/conformance/backend_under_test.h"

namespace tessera {
namespace {

// FNV-1a.
uint64_t HashOf(const std::vector<float>& values, uint64_t hash) {
  const auto* bytes = reinterpret_cast<const unsigned char*>(values.data());
  for (size_t i = 0; i < values.size() * sizeof(float); ++i) {
    hash = (hash ^ bytes[i]) * 0x100000001b3u;
  }
  return hash;
}

// Values that do not depend on the standard library's distributions.
std::vector<float> Values(int64_t n, uint32_t seed, float spread) {
  std::mt19937 random(seed);
  std::vector<float> values(n);
  for (float& value : values) value = spread * (static_cast<float>(random() >> 8) * 0x1p-23f - 1);
  return values;
}

uint64_t HashOfKernels(int threads) {
  const auto made = CreateBackend("cpu", threads);
  REQUIRE(made.ok());
  Backend& backend = **made;
  const MatrixShape s{131, 1013};
  const DeviceArray<float> x(backend, Values(s.size(), 1, 3)), y(backend, s.size()),
      dy(backend, Values(s.size(), 2, 1)), scale(backend, Values(s.columns, 3, 1)),
      shift(backend, Values(s.columns, 4, 1)), mean(backend, s.columns),
      inverse_sigma(backend, s.columns), dscale(backend, s.columns), dshift(backend, s.columns),
      dx(backend, s.size());
  uint64_t hash = 0xcbf29ce484222325u;
  backend.batch_norm().Statistics(s, 1e-5, x.data(), mean.data(), inverse_sigma.data());
  backend.batch_norm().Normalize(s, x.data(), mean.data(), inverse_sigma.data(),
                                 {scale.data(), shift.data()}, true, y.data());
  const DeviceArray<DropoutKey> key(backend, {DropoutKey{1, 2, 3}});
  backend.activation().Dropout(s, key.data(), 4, 0.4, y.data(), y.data());
  backend.batch_norm().Backward(
      s, {x.data(), mean.data(), inverse_sigma.data(), scale.data(), y.data(), dy.data()},
      WriteMode::kOverwrite, dscale.data(), dshift.data(), dx.data());
  for (const auto* array : {&mean, &inverse_sigma, &y, &dscale, &dshift, &dx}) {
    hash = HashOf(array->Read(), hash);
  }

  const DeviceArray<int32_t> labels(backend, std::vector<int32_t>(s.rows, 17));
  const DeviceArray<LossSums> sums(backend, 1);
  backend.loss().SoftmaxCrossEntropy(s, x.data(), {labels.data()}, {}, dx.data(), sums.data());
  hash = HashOf(dx.Read(), hash);
  backend.loss().SigmoidCrossEntropy(s, x.data(), {labels.data(), nullptr}, {}, dx.data(),
                                     sums.data());
  hash = HashOf(dx.Read(), hash);

  v1::Optimizer sgd;
  sgd.mutable_sgd()->set_learning_rate(0.1);
  sgd.mutable_sgd()->set_momentum(0.9);
  sgd.mutable_sgd()->set_weight_decay(0.01);
  float* const momentum[] = {y.data()};
  const DeviceArray<OptimizerNumbers> numbers(backend, {NumbersOf(sgd, {})});
  backend.vector().MakeOptimizer(sgd)->Step(numbers.data(), s.size(), x.data(), momentum, dy.data(),
                                            nullptr);
  backend.vector().ColumnSums(s, dy.data(), WriteMode::kOverwrite, mean.data());
  for (const auto* array : {&y, &dy, &mean}) hash = HashOf(array->Read(), hash);
  return hash;
}

// Of smoothed labels, squared distances and the norm of an array.
uint64_t HashOfSums(int threads) {
  const auto made = CreateBackend("cpu", threads);
  REQUIRE(made.ok());
  Backend& backend = **made;
  const MatrixShape s{131, 1013};
  const DeviceArray<float> x(backend, Values(s.size(), 1, 3)), t(backend, Values(s.size(), 2, 1)),
      dx(backend, s.size()), factor(backend, 1);
  const DeviceArray<int32_t> labels(backend, std::vector<int32_t>(s.rows, 17));
  const DeviceArray<LossSums> sums(backend, 1);
  uint64_t hash = 0xcbf29ce484222325u;
  const auto add = [&] {
    hash = HashOf(dx.Read(), hash);
    hash = HashOf({static_cast<float>(sums.Read()[0].loss)}, hash);
  };
  backend.loss().SoftmaxCrossEntropy(s, x.data(), {labels.data(), nullptr, 0.1f}, {}, dx.data(),
                                     sums.data());
  add();
  backend.loss().MeanSquaredError(s, x.data(), {labels.data()}, {}, dx.data(), sums.data());
  add();
  backend.loss().MeanSquaredError(s, x.data(), {nullptr, t.data()}, {}, dx.data(), sums.data());
  backend.vector().NormFactor(s.size(), dx.data(), {0.01f, 1e-6f, 1}, factor.data());
  backend.vector().ScaleBy(s.size(), factor.data(), dx.data());
  backend.vector().Blend(s.size(), 0.3f, x.data(), 0.7f, dx.data());
  add();
  return hash;
}

// Optimizers that take roots and quotients, and Nesterov.
std::vector<v1::Optimizer> Optimizers() {
  std::vector<v1::Optimizer> optimizers(4);
  optimizers[0].mutable_sgd()->set_learning_rate(0.1);
  optimizers[0].mutable_sgd()->set_momentum(0.9);
  optimizers[0].mutable_sgd()->set_nesterov(true);
  optimizers[1].mutable_adagrad()->set_learning_rate(0.1);
  optimizers[1].mutable_adagrad()->set_epsilon(1e-10);
  v1::Adam* const adam = optimizers[2].mutable_adam();
  v1::AdamW* const adamw = optimizers[3].mutable_adamw();
  adam->set_learning_rate(0.01);
  adam->set_beta1(0.9);
  adam->set_beta2(0.999);
  adam->set_epsilon(1e-8);
  adam->set_weight_decay(0.1);
  adamw->set_learning_rate(0.01);
  adamw->set_beta1(0.8);
  adamw->set_beta2(0.95);
  adamw->set_epsilon(1e-3);
  adamw->set_weight_decay(0.1);
  return optimizers;
}

std::vector<v1::Optimizer> RmsProps() {
  std::vector<v1::Optimizer> optimizers(2);
  for (v1::Optimizer& optimizer : optimizers) {
    v1::RmsProp* const rmsprop = optimizer.mutable_rmsprop();
    rmsprop->set_learning_rate(0.01);
    rmsprop->set_alpha(0.99);
    rmsprop->set_epsilon(1e-8);
    rmsprop->set_weight_decay(0.1);
  }
  optimizers[1].mutable_rmsprop()->set_momentum(0.9);
  return optimizers;
}

// Five updates of each.
uint64_t HashOf(const std::vector<v1::Optimizer>& optimizers, int threads) {
  const auto made = CreateBackend("cpu", threads);
  REQUIRE(made.ok());
  Backend& backend = **made;
  const int64_t n = 100003;
  uint64_t hash = 0xcbf29ce484222325u;
  for (const v1::Optimizer& optimizer : optimizers) {
    const auto kernel = backend.vector().MakeOptimizer(optimizer);
    const DeviceArray<float> w(backend, Values(n, 1, 1)), first(backend, n), second(backend, n);
    float* const states[] = {first.data(), second.data()};
    for (unsigned step = 1; step <= 5; ++step) {
      const DeviceArray<float> g(backend, Values(n, 1 + step, 1));
      const DeviceArray<OptimizerNumbers> numbers(backend, {NumbersOf(optimizer, {1, step, 0.5f})});
      kernel->Step(numbers.data(), n, g.data(), states, w.data(), nullptr);
    }
    for (const auto* array : {&w, &first, &second}) hash = HashOf(array->Read(), hash);
  }
  return hash;
}

// Norms within rows, forward and backward, and the functions of a value with their slopes.
uint64_t HashOfRowKernels(int threads) {
  const auto made = CreateBackend("cpu", threads);
  REQUIRE(made.ok());
  Backend& backend = **made;
  uint64_t hash = 0xcbf29ce484222325u;
  for (const GroupsShape& s : {GroupsShape{37, 1, 1013, 1}, {19, 45, 96, 8}, {11, 25, 600, 2}}) {
    const DeviceArray<float> x(backend, Values(s.size(), 1, 3)), y(backend, s.size()),
        dy(backend, Values(s.size(), 2, 1)), scale(backend, Values(s.channels, 3, 1)),
        shift(backend, Values(s.channels, 4, 1)), mean(backend, s.rows * s.groups),
        inverse_sigma(backend, s.rows * s.groups), dscale(backend, s.channels),
        dshift(backend, s.channels), dx(backend, s.size());
    GroupNormKernel& kernel = backend.group_norm();
    kernel.Forward(s, 1e-5, x.data(), {scale.data(), shift.data()}, mean.data(),
                   inverse_sigma.data(), y.data());
    kernel.Backward(s, {x.data(), mean.data(), inverse_sigma.data(), scale.data(), dy.data()},
                    WriteMode::kOverwrite, dscale.data(), dshift.data(), dx.data());
    for (const auto* array : {&mean, &inverse_sigma, &y, &dscale, &dshift, &dx}) {
      hash = HashOf(array->Read(), hash);
    }
  }
  const MatrixShape s{431, 103};
  const DeviceArray<float> x(backend, Values(s.size(), 1, 9)), y(backend, s.size()),
      dy(backend, Values(s.size(), 2, 1)), dx(backend, s.size());
  for (const double beta : {0.75, 1.3}) {
    const ResponseWindow window{5, 0.5, beta, 2};
    backend.response_norm().Forward(s, window, x.data(), y.data());
    backend.response_norm().Backward(s, window, x.data(), dy.data(), dx.data());
    for (const auto* array : {&y, &dx}) hash = HashOf(array->Read(), hash);
  }
  for (const Activation kind : {Activation::kGelu, Activation::kGeluTanh, Activation::kTanh,
                                Activation::kSigmoid, Activation::kSilu, Activation::kLeakyRelu}) {
    const ActivationFunction function{kind, 0.1f};
    backend.activation().Apply(function, s.size(), x.data(), y.data());
    // Slopes of y are those of some number all the same.
    backend.activation().ApplyBackward(function, s.size(), y.data(), dy.data(), dx.data());
    for (const auto* array : {&y, &dx}) hash = HashOf(array->Read(), hash);
  }
  return hash;
}

// Attention over several blocks and parts of them, with and without dropout, and embeddings.
uint64_t HashOfTextKernels(int threads) {
  const auto made = CreateBackend("cpu", threads);
  REQUIRE(made.ok());
  Backend& backend = **made;
  uint64_t hash = 0xcbf29ce484222325u;
  const DeviceArray<DropoutKey> key(backend, {DropoutKey{1, 2, 3, 4}});
  for (const double probability : {0.0, 0.3}) {
    for (const AttentionShape& s : {AttentionShape{3, 150, 3, 33, true}, {2, 77, 2, 64, false}}) {
      const DeviceArray<float> qkv(backend, Values(3 * s.size(), 1, 2)), y(backend, s.size()),
          log_sums(backend, s.sums()), dy(backend, Values(s.size(), 2, 1)),
          dqkv(backend, 3 * s.size());
      const AttentionDropout dropout{key.data(), 5, probability};
      backend.attention().Forward(s, dropout, qkv.data(), y.data(), log_sums.data());
      backend.attention().Backward(s, dropout, {qkv.data(), y.data(), log_sums.data(), dy.data()},
                                   dqkv.data());
      for (const auto* array : {&y, &log_sums, &dqkv}) hash = HashOf(array->Read(), hash);
    }
  }
  const EmbeddingShape s{7, 45, 65, 97};
  std::vector<float> of_places(s.tokens());
  for (int64_t i = 0; i < s.tokens(); ++i) of_places[i] = static_cast<float>(i * i % s.vocabulary);
  const DeviceArray<float> tokens(backend, of_places),
      weight(backend, Values(s.vocabulary * s.units, 1, 1)),
      positions(backend, Values(s.places * s.units, 2, 1)), y(backend, s.tokens() * s.units),
      dweight(backend, s.vocabulary * s.units), dpositions(backend, s.places * s.units);
  backend.embedding().Forward(s, tokens.data(), weight.data(), positions.data(), y.data());
  backend.embedding().Backward(s, tokens.data(), y.data(), WriteMode::kOverwrite, dweight.data(),
                               WriteMode::kOverwrite, dpositions.data());
  for (const auto* array : {&y, &dweight, &dpositions}) hash = HashOf(array->Read(), hash);
  return hash;
}

}  // namespace

TEST_CASE("the kernels' results are these very bits, with any number of threads", "[bits]") {
  for (const int threads : {1, 2, 3, 7}) CHECK(HashOfKernels(threads) == 0x9cb43fcb96c4b03fu);
}

TEST_CASE("norms within rows and functions have these very bits, with any number of threads",
          "[bits]") {
  for (const int threads : {1, 2, 3, 7}) CHECK(HashOfRowKernels(threads) == 0x79a6b052b3ffcf5au);
}

TEST_CASE("attention and embeddings have these very bits, with any number of threads", "[bits]") {
  for (const int threads : {1, 2, 3, 7}) CHECK(HashOfTextKernels(threads) == 0xe4961b0e846fe79du);
}

TEST_CASE("sums of losses and norms are these very bits, with any number of threads", "[bits]") {
  for (const int threads : {1, 2, 3, 7}) CHECK(HashOfSums(threads) == 0xbdd035f6ca098609u);
}

TEST_CASE("the optimizers' results are these very bits, with any number of threads", "[bits]") {
  for (const int threads : {1, 2, 3, 7}) {
    CHECK(HashOf(Optimizers(), threads) == 0x2d78322e222ea537u);
    CHECK(HashOf(RmsProps(), threads) == 0x3cb51c4c730e9f57u);
  }
}

}  // namespace tessera
