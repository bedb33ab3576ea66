// Kernels that are queued again and again.
#include "tests/kernels/conformance/backend_under_test.h"

namespace tessera {

TEST_CASE("a sequence does the same however often it runs, on what lies there by then",
          "[sequence]") {
  const auto backend = BackendUnderTest(1);
  Memory& memory = backend->memory();
  const MatrixShape shape{257, 33};
  const int64_t n = shape.size();
  const DeviceArray<float> x(*backend, n, 1), y(*backend, n), sums(*backend, shape.columns),
      z(*backend, n);
  auto seen = Buffer<float>::CreateHost(memory, n);
  REQUIRE(seen.ok());
  const std::unique_ptr<Sequence> sequence = backend->MakeSequence();
  const auto queue = [&] {
    backend->activation().Relu(n, x.data(), y.data());
    memory.Fetch(y.data(), seen->bytes(), seen->data());
    backend->vector().ColumnSums(shape, y.data(), sums.data());
    memory.Copy(x.data(), 4 * n, z.data());
  };
  // Scratch that is larger than the sequence's, halfway; and somebody else where that was.
  std::unique_ptr<DeviceArray<float>> other;
  const MatrixShape large{5000, 700};
  const DeviceArray<float> many(*backend, large.size()), totals(*backend, large.columns);
  for (int round = 0; round < 8; ++round) {
    CAPTURE(round);
    if (round == 4) {
      backend->vector().ColumnSums(large, many.data(), totals.data());
      other = std::make_unique<DeviceArray<float>>(*backend, std::vector<float>(40, 7.0f));
    }
    const std::vector<float> now = RandomValues(n, 100 + round);
    memory.CopyIn(now.data(), 4 * n, x.data());
    // What is read before the next run is done with the one before.
    sequence->Run(queue);
    const std::vector<float> got = sums.Read(), copied = z.Read();
    REQUIRE(copied == now);
    for (int64_t i = 0; i < n; ++i) REQUIRE(seen->data()[i] == std::max(now[i], 0.0f));
    for (int64_t c = 0; c < shape.columns; ++c) {
      double want = 0;
      for (int64_t r = 0; r < shape.rows; ++r) want += std::max(now[r * shape.columns + c], 0.0f);
      REQUIRE(std::abs(got[c] - want) <= 1e-6 * std::abs(want));
    }
  }
  CHECK(other->Read() == std::vector<float>(40, 7.0f));
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

}  // namespace tessera
