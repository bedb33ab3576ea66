// Arithmetic over whole arrays: updates, differences, sums, conversions.
#ifndef TESSERA_KERNELS_VECTOR_H_
#define TESSERA_KERNELS_VECTOR_H_

#include <cstdint>
#include <memory>

#include "kernels/bf16.h"
#include "kernels/optimizer.h"
#include "kernels/shape.h"
#include "kernels/write_mode.h"
#include "proto/job.pb.h"

namespace tessera {

// min(factor_max, most / (|x| + epsilon)), by which an array x is multiplied.
struct NormLimit {
  float most = 0;
  float epsilon = 0;
  float factor_max = 0;
};

// Bandwidth bound, all of them. Arrays may be as close as adjacent, and overlap only where it
// says so.
class VectorKernel {
 public:
  virtual ~VectorKernel() = default;

  // y += a x.
  virtual void Axpy(int64_t n, float a, const float* x, float* y) = 0;
  // out = a + b. out may be a or b.
  virtual void Add(int64_t n, const float* a, const float* b, float* out) = 0;
  // out = a - b. out may be a or b.
  virtual void Subtract(int64_t n, const float* a, const float* b, float* out) = 0;
  // y = a x + b y.
  virtual void Blend(int64_t n, float a, const float* x, float b, float* y) = 0;
  // *factor becomes what `limit` says of x. |x| is the root of the sum of squares, in f64 and in an order that n alone
  // decides.
  virtual void NormFactor(int64_t n, const float* x, const NormLimit& limit, float* factor) = 0;
  // x *= *factor, which is read when the kernel runs.
  virtual void ScaleBy(int64_t n, const float* factor, float* x) = 0;
  // `optimizer` names one of its kinds but muon, which is worker/model/muon.h's.
  virtual std::unique_ptr<OptimizerKernel> MakeOptimizer(const v1::Optimizer& optimizer) = 0;

  // sums[c] = sum over the rows of x, and where it adds of what is there, in f64, then rounded.
  virtual void ColumnSums(const MatrixShape& shape, const float* x, WriteMode mode,
                          float* sums) = 0;

  // y: `count` matrices [columns, rows], which are those of x, [rows, columns], turned round. They do not
  // overlap.
  virtual void Transpose(int64_t count, const MatrixShape& shape, const float* x, float* y) = 0;

  // Copies a matrix of this shape to y. Row r begins at x + r x_stride and goes to y + r y_stride; strides are at least
  // the columns. They do not overlap.
  virtual void CopyBlock(const MatrixShape& shape, const float* x, int64_t x_stride, float* y,
                         int64_t y_stride) = 0;

  virtual void Round(int64_t n, const float* x, Bf16* y) = 0;
  virtual void Widen(int64_t n, const Bf16* x, float* y) = 0;
};

}  // namespace tessera

#endif  // TESSERA_KERNELS_VECTOR_H_
