// Kernels that are queued again and again.
#include "tests/kernels/conformance/backend_under_test.h"

namespace tessera {
namespace {

// Results do not show it: a device that takes records of kernels took these.
void CheckRecorded(Backend& backend) {
  const Shortcuts shortcuts = backend.shortcuts();
  CHECK(shortcuts.records_refused == 0);
  CHECK((shortcuts.records > 0) == !backend.memory().host_addressable());
}

}  // namespace

TEST_CASE("a sequence does the same however often it runs, on what lies there by then",
          "[sequence]") {
  const auto backend = BackendUnderTest(1);
  Memory& memory = backend->memory();
  // Rows for so many parts that their sums leave room for another array.
  const MatrixShape shape{1300, 33};
  const int64_t n = shape.size();
  const DeviceArray<float> x(*backend, n, 1), y(*backend, n), sums(*backend, shape.columns),
      z(*backend, n);
  auto seen = Buffer<float>::CreateHost(memory, n);
  REQUIRE(seen.ok());
  const std::unique_ptr<Sequence> sequence = backend->MakeSequence();
  const auto queue = [&] {
    backend->activation().Relu(n, x.data(), y.data());
    memory.Fetch(y.data(), seen->bytes(), seen->data());
    backend->vector().ColumnSums(shape, y.data(), WriteMode::kOverwrite, sums.data());
    memory.Copy(x.data(), 4 * n, z.data());
  };
  // Scratch that is larger than the sequence's, halfway; and somebody else where that was. Behind it lies
  // what keeps the larger one from lying there, too.
  std::unique_ptr<DeviceArray<float>> behind, other;
  const MatrixShape large{5000, 700};
  const DeviceArray<float> many(*backend, large.size()), totals(*backend, large.columns);
  for (int round = 0; round < 8; ++round) {
    CAPTURE(round);
    if (round == 4) {
      backend->vector().ColumnSums(large, many.data(), WriteMode::kOverwrite, totals.data());
      other = std::make_unique<DeviceArray<float>>(*backend, std::vector<float>(40, 7.0f));
    }
    const std::vector<float> now = RandomValues(n, 100 + round);
    memory.CopyIn(now.data(), 4 * n, x.data());
    // What is read before the next run is done with the one before.
    sequence->Run(queue);
    const std::vector<float> got = sums.Read(), copied = z.Read();
    REQUIRE(copied == now);
    if (round == 0) behind = std::make_unique<DeviceArray<float>>(*backend, 1);
    for (int64_t i = 0; i < n; ++i) REQUIRE(seen->data()[i] == std::max(now[i], 0.0f));
    for (int64_t c = 0; c < shape.columns; ++c) {
      double want = 0;
      for (int64_t r = 0; r < shape.rows; ++r) want += std::max(now[r * shape.columns + c], 0.0f);
      REQUIRE(std::abs(got[c] - want) <= 1e-6 * std::abs(want));
    }
  }
  CHECK(other->Read() == std::vector<float>(40, 7.0f));
  CheckRecorded(*backend);
}

TEST_CASE("a sequence of convolutions does the same however often it runs", "[sequence]") {
  const auto backend = BackendUnderTest(1), plain = BackendUnderTest(1);
  const ImagesShape shape{5, MapOf({3, 8, 7}, {3, 3, 1, 1, 1, 1}, 4)};
  const ImagesShape pooled{5, MapOf(shape.map.to, {3, 3, 2, 2, 1, 1}, 4)};
  const ImagesShape large{40, MapOf({16, 12, 12}, {3, 3, 1, 1, 1, 1}, 8)};
  struct Arrays {
    Arrays(Backend& backend, const ImagesShape& s, const ImagesShape& pooled)
        : x(backend, s.rows * s.map.from.size()),
          w(backend, RandomValues(4 * 3 * 9, 2)),
          y(backend, s.rows * s.map.to.size()),
          most(backend, pooled.rows * pooled.map.to.size()),
          dy(backend, s.rows * s.map.to.size()),
          dw(backend, 4 * 3 * 9),
          dx(backend, s.rows * s.map.from.size()) {}
    DeviceArray<float> x, w, y, most, dy, dw, dx;
  };
  const Arrays repeated(*backend, shape, pooled), anew(*plain, shape, pooled);
  const auto queue = [&](Backend& on, const Arrays& a) {
    on.convolution().Forward(shape, a.x.data(), a.w.data(), nullptr, a.y.data());
    on.pooling().Max(pooled, a.y.data(), a.most.data());
    on.pooling().MaxBackward(pooled, a.y.data(), a.most.data(), a.dy.data());
    on.convolution().WeightGradient(shape, a.x.data(), a.dy.data(), WriteMode::kOverwrite,
                                    a.dw.data());
    on.convolution().InputGradient(shape, a.dy.data(), a.w.data(), a.dx.data());
  };
  const std::unique_ptr<Sequence> sequence = backend->MakeSequence();
  // Patches that take more room than the sequence's, halfway, as above.
  std::unique_ptr<DeviceArray<float>> behind, other;
  const DeviceArray<float> many(*backend, large.rows * large.map.from.size()),
      weights(*backend, 8 * 16 * 9), out(*backend, large.rows * large.map.to.size());
  for (int round = 0; round < 8; ++round) {
    CAPTURE(round);
    if (round == 4) {
      backend->convolution().Forward(large, many.data(), weights.data(), nullptr, out.data());
      other = std::make_unique<DeviceArray<float>>(*backend, std::vector<float>(4000, 7.0f));
    }
    const std::vector<float> now = RandomValues(shape.rows * shape.map.from.size(), 100 + round);
    const auto bytes = static_cast<int64_t>(now.size() * sizeof(float));
    backend->memory().CopyIn(now.data(), bytes, repeated.x.data());
    plain->memory().CopyIn(now.data(), bytes, anew.x.data());
    sequence->Run([&] { queue(*backend, repeated); });
    queue(*plain, anew);
    REQUIRE(repeated.most.Read() == anew.most.Read());
    REQUIRE(repeated.dw.Read() == anew.dw.Read());
    REQUIRE(repeated.dx.Read() == anew.dx.Read());
    if (round == 0) behind = std::make_unique<DeviceArray<float>>(*backend, 1);
  }
  CHECK(other->Read() == std::vector<float>(4000, 7.0f));
  CheckRecorded(*backend);
}

TEST_CASE("sequences run between other kernels, in the order of the calls", "[sequence]") {
  const auto backend = BackendUnderTest(1);
  const std::vector<float> ones(1000, 1.0f);
  const DeviceArray<float> x(*backend, ones), sum(*backend, 1000);
  const std::unique_ptr<Sequence> add = backend->MakeSequence(), twice = backend->MakeSequence();
  float want = 0;
  for (int round = 0; round < 6; ++round) {
    add->Run([&] { backend->vector().Axpy(1000, 1.0f, x.data(), sum.data()); });
    twice->Run([&] { backend->vector().Axpy(1000, 1.0f, sum.data(), sum.data()); });
    backend->vector().Axpy(1000, -3.0f, x.data(), sum.data());
    want = 2 * (want + 1) - 3;
  }
  CHECK(sum.Read() == std::vector<float>(1000, want));
}

TEST_CASE("repeated dropouts and updates go by the numbers that lie there by then", "[sequence]") {
  const auto backend = BackendUnderTest(1), plain = BackendUnderTest(1);
  Memory& memory = backend->memory();
  const int64_t n = 1001;
  v1::Optimizer adamw;
  adamw.mutable_adamw()->set_learning_rate(0.05);
  adamw.mutable_adamw()->set_beta1(0.8);
  adamw.mutable_adamw()->set_beta2(0.9);
  adamw.mutable_adamw()->set_epsilon(1e-3);
  v1::Optimizer momentum;
  momentum.mutable_sgd()->set_learning_rate(0.1);
  momentum.mutable_sgd()->set_momentum(0.9);
  for (const v1::Optimizer& optimizer : {adamw, momentum}) {
    const std::vector<float> x = RandomValues(n, 1), w = RandomValues(n, 2);
    // One backend repeats, the other is asked anew each time.
    struct Arrays {
      explicit Arrays(Backend& backend, const std::vector<float>& x, const std::vector<float>& w)
          : key(backend, 1),
            numbers(backend, 1),
            x(backend, x),
            w(backend, w),
            g(backend, x.size()),
            first(backend, x.size()),
            second(backend, x.size()) {}
      DeviceArray<DropoutKey> key;
      DeviceArray<OptimizerNumbers> numbers;
      DeviceArray<float> x, w, g, first, second;
    };
    Arrays repeated(*backend, x, w), anew(*plain, x, w);
    const auto queue = [&](Backend& on, Arrays& a, OptimizerKernel* kernel) {
      float* const states[] = {a.first.data(), a.second.data()};
      on.activation().Dropout({1, n}, a.key.data(), 3, 0.4, a.x.data(), a.g.data());
      kernel->Step(a.numbers.data(), n, a.g.data(), states, a.w.data(), nullptr);
    };
    const auto kernel = backend->vector().MakeOptimizer(optimizer),
               plain_kernel = plain->vector().MakeOptimizer(optimizer);
    const std::unique_ptr<Sequence> sequence = backend->MakeSequence();
    std::vector<float> last;
    for (uint64_t step = 1; step <= 5; ++step) {
      CAPTURE(optimizer.ShortDebugString(), step);
      const DropoutKey key{7, step, 2};
      const OptimizerNumbers numbers =
          NumbersOf(optimizer, {0.5f, step, 1.0f / static_cast<float>(step)});
      memory.CopyIn(&key, sizeof(key), repeated.key.data());
      memory.CopyIn(&numbers, sizeof(numbers), repeated.numbers.data());
      plain->memory().CopyIn(&key, sizeof(key), anew.key.data());
      plain->memory().CopyIn(&numbers, sizeof(numbers), anew.numbers.data());
      sequence->Run([&] { queue(*backend, repeated, kernel.get()); });
      queue(*plain, anew, plain_kernel.get());
      const std::vector<float> got = repeated.g.Read();
      REQUIRE(got == anew.g.Read());
      REQUIRE(got != last);
      last = got;
      REQUIRE(repeated.w.Read() == anew.w.Read());
    }
  }
}

}  // namespace tessera
