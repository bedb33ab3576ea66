// Sums over the columns of a matrix, in two passes over scratch.
#ifndef TESSERA_KERNELS_CUDA_COLUMN_SUMS_H_
#define TESSERA_KERNELS_CUDA_COLUMN_SUMS_H_

#include "kernels/cuda/scratch.h"
#include "kernels/cuda/tiles.h"
#include "kernels/shape.h"

namespace tessera {

// Bytes that SumColumns takes of the scratch.
template <typename Op>
int64_t ColumnSumsBytes(const MatrixShape& shape) {
  const cuda::ColumnCut cut = cuda::ColumnCut::Of(shape.rows, shape.columns);
  return cut.parts * Op::kSums * shape.columns * static_cast<int64_t>(sizeof(double));
}

// Sums the columns. `partial` is scratch of that size.
template <typename Op>
void SumColumns(const MatrixShape& shape, const Op& op, double* partial, cuda::Device* device) {
  if (shape.columns == 0) return;
  cuda::ColumnSums<Op> sums{op, shape.rows, shape.columns,
                            cuda::ColumnCut::Of(shape.rows, shape.columns), partial};
  device->Launch(sums.cut.blocks(), sums);
  cuda::ColumnFinish<Op> finish{op, shape.columns, sums.cut.parts, partial};
  device->Launch(finish.blocks(), finish);
}

// The sums with four columns to a thread, where rows begin at multiples of 16 bytes.
template <typename Op>
void MapColumns(const MatrixShape& shape, const Op& op, cuda::Device* device) {
  if (shape.size() == 0) return;
  bool wide = shape.columns % 4 == 0 && cuda::HoldsFours(op.out);
  for (int a = 0; a < Op::kIn; ++a) wide = wide && cuda::HoldsFours(op.in[a]);
  if (wide) {
    const cuda::ColumnMap<Op, true> kernel(op, shape.rows, shape.columns);
    device->Launch(kernel.blocks(), kernel);
  } else {
    const cuda::ColumnMap<Op, false> kernel(op, shape.rows, shape.columns);
    device->Launch(kernel.blocks(), kernel);
  }
}

}  // namespace tessera

#endif  // TESSERA_KERNELS_CUDA_COLUMN_SUMS_H_
