#include "kernels/cuda/group_norm.h"

#include "common/base/check.h"
#include "kernels/cuda/column_sums.h"
#include "kernels/cuda/group_norm_kernels.h"

namespace tessera {
namespace {

cuda::RowGroups GroupsOf(const GroupsShape& shape) {
  // A block counts its group's values in 32 bits, and the threads behind its end.
  TESSERA_CHECK(shape.positions * shape.group_channels() < int64_t{1} << 31);
  return {shape.positions, shape.channels, shape.groups};
}

}  // namespace

void CudaGroupNorm::Forward(const GroupsShape& shape, double epsilon, const float* x,
                            const Affine& affine, float* mean, float* inverse_sigma, float* y) {
  const cuda::GroupNormForward kernel{{},   GroupsOf(shape), epsilon, x, affine.scale, affine.shift,
                                      mean, inverse_sigma,   y};
  // A block for each group of each row.
  device_.Launch(shape.rows * shape.groups, kernel);
}

void CudaGroupNorm::Backward(const GroupsShape& shape, const BackwardInput& in, WriteMode mode,
                             float* dscale, float* dshift, float* dx) {
  // dx may lie where dy does, which the sums read.
  if (dscale != nullptr || dshift != nullptr) {
    using Op = cuda::GroupNormSumsOp;
    const MatrixShape columns{shape.rows * shape.positions, shape.channels};
    TESSERA_CHECK(columns.rows < int64_t{1} << 32);
    void* const partial = scratch_.Of(ColumnSumsBytes<Op>(columns));
    if (partial == nullptr) return;
    SumColumns<Op>(columns,
                   {GroupsOf(shape), in.x, in.dy, in.mean, in.inverse_sigma,
                    mode == WriteMode::kAdd, dscale, dshift},
                   static_cast<double*>(partial), &device_);
  }
  if (dx == nullptr) return;
  const cuda::GroupNormBackward kernel{{},       GroupsOf(shape), in.x, in.mean, in.inverse_sigma,
                                       in.scale, in.dy,           dx};
  device_.Launch(shape.rows * shape.groups, kernel);
}

}  // namespace tessera
