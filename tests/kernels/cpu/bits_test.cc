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
  for (size_t i = 0; i < values.size() * sizeof(float); ++i)
    hash = (hash ^ bytes[i]) * 0x100000001b3u;
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
  backend.activation().Dropout(s.size(), {1, 2, 3, 4}, 0.4, y.data(), y.data());
  backend.batch_norm().Backward(
      s, {x.data(), mean.data(), inverse_sigma.data(), scale.data(), y.data(), dy.data()},
      dscale.data(), dshift.data(), dx.data());
  for (const auto* array : {&mean, &inverse_sigma, &y, &dscale, &dshift, &dx})
    hash = HashOf(array->Read(), hash);

  const DeviceArray<int32_t> labels(backend, std::vector<int32_t>(s.rows, 17));
  const DeviceArray<LossSums> sums(backend, 1);
  backend.loss().SoftmaxCrossEntropy(s, x.data(), labels.data(), dx.data(), sums.data());
  hash = HashOf(dx.Read(), hash);
  backend.loss().SigmoidCrossEntropy(s, x.data(), {labels.data(), nullptr}, dx.data(), sums.data());
  hash = HashOf(dx.Read(), hash);

  backend.vector().Sgd(s.size(), {0.1f, 0.9f, 0.01f}, x.data(), y.data(), dy.data());
  backend.vector().ColumnSums(s, dy.data(), mean.data());
  for (const auto* array : {&y, &dy, &mean}) hash = HashOf(array->Read(), hash);
  return hash;
}

}  // namespace

TEST_CASE("the kernels' results are these very bits, with any number of threads", "[bits]") {
  for (const int threads : {1, 2, 3, 7}) CHECK(HashOfKernels(threads) == 0x9cb43fcb96c4b03fu);
}

}  // namespace tessera
