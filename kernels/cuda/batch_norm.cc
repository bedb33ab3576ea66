#include "kernels/cuda/batch_norm.h"

#include <limits>

#include "kernels/cuda/batch_norm_kernels.h"
#include "kernels/cuda/column_sums.h"

namespace tessera {
namespace {

// With this floor the gate of a relu is always open.
constexpr float kNoFloor = -std::numeric_limits<float>::infinity();

}  // namespace

void CudaBatchNorm::Statistics(const MatrixShape& shape, double epsilon, const float* x,
                               float* mean, float* inverse_sigma) {
  using Op = cuda::StatisticsOp;
  // Sums of parts of the rows, which a second kernel adds up in a fixed order.
  void* const partial = scratch_.Of(ColumnSumsBytes<Op>(shape));
  if (partial == nullptr) return;
  SumColumns<Op>(shape, {x, shape.rows, epsilon, mean, inverse_sigma},
                 static_cast<double*>(partial), &device_);
}

void CudaBatchNorm::AddToSums(const MatrixShape& shape, bool is_first, const float* x,
                              double* sums) {
  using Op = cuda::SampleSumsOp;
  void* const partial = scratch_.Of(ColumnSumsBytes<Op>(shape));
  if (partial == nullptr) return;
  SumColumns<Op>(shape, {x, shape.columns, is_first, sums}, static_cast<double*>(partial),
                 &device_);
}

void CudaBatchNorm::StatisticsOfSums(const MatrixShape& shape, double epsilon, const double* sums,
                                     float* mean, float* inverse_sigma) {
  using Op = cuda::SampleStatisticsOp;
  if (shape.columns == 0) return;
  // The sums behind the pivots lie as those of a single part.
  const cuda::ColumnFinish<Op> finish{
      {sums, shape.rows, epsilon, mean, inverse_sigma}, shape.columns, 1, sums + shape.columns};
  device_.Launch(finish.blocks(), finish);
}

void CudaBatchNorm::Normalize(const MatrixShape& shape, const float* x, const float* mean,
                              const float* inverse_sigma, const Affine& affine, bool relu,
                              float* y) {
  MapColumns<cuda::NormalizeOp>(
      shape, {{x}, y, mean, inverse_sigma, affine.scale, affine.shift, relu ? 0.0f : kNoFloor},
      &device_);
}

void CudaBatchNorm::Backward(const MatrixShape& shape, const BackwardInput& in, WriteMode mode,
                             float* dscale, float* dshift, float* dx) {
  using Op = cuda::BackwardSumsOp;
  // Without a relu any array serves as the gate, as the floor lets all through.
  const float* const gate = in.y == nullptr ? in.x : in.y;
  const float floor = in.y == nullptr ? kNoFloor : 0.0f;
  // The means lie behind the partial sums.
  const int64_t sums_bytes = ColumnSumsBytes<Op>(shape);
  char* const scratch = static_cast<char*>(
      scratch_.Of(sums_bytes + 2 * shape.columns * static_cast<int64_t>(sizeof(float))));
  if (scratch == nullptr) return;
  float* const mean_g = reinterpret_cast<float*>(scratch + sums_bytes);
  float* const mean_g_x_hat = mean_g + shape.columns;
  // Means are sums times 1 / rows, computed in f64.
  const double share = shape.rows == 0 ? 0.0 : 1.0 / static_cast<double>(shape.rows);
  SumColumns<Op>(shape,
                 {in.x, in.dy, gate, floor, in.mean, in.inverse_sigma, share,
                  mode == WriteMode::kAdd, dscale, dshift, mean_g, mean_g_x_hat},
                 reinterpret_cast<double*>(scratch), &device_);
  if (dx == nullptr) return;
  MapColumns<cuda::BackwardValuesOp>(
      shape,
      {{in.x, in.dy, gate}, dx, floor, in.mean, in.inverse_sigma, in.scale, mean_g, mean_g_x_hat},
      &device_);
}

}  // namespace tessera
