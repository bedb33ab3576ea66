// Batch normalisation.  Ioffe, Szegedy: Batch Normalization, ICML 2015.
//
//   mean_c = sum_r x_rc / rows          variance_c = sum_r (x_rc - mean_c)^2 / rows     (biased)
//   inverse_sigma_c = 1 / sqrt(variance_c + epsilon)
//   y_rc = scale_c (x_rc - mean_c) inverse_sigma_c + shift_c
//
// There are no running statistics: training uses those of its rows, evaluation uses constants that
// were taken from a calibration sample, whose rows may come in parts:
//
//   pivot_c = x_0c     distance_c = sum_r (x_rc - pivot_c)     square_c = sum_r (x_rc - pivot_c)^2
//   mean_c = pivot_c + distance_c / rows     variance_c = (square_c - distance_c^2 / rows) / rows
//
// In f64 these are as good as sums around the mean unless the first row is a million deviations away from it.
#ifndef TESSERA_KERNELS_BATCH_NORM_H_
#define TESSERA_KERNELS_BATCH_NORM_H_

#include "kernels/shape.h"
#include "kernels/write_mode.h"

namespace tessera {

class BatchNormKernel {
 public:
  virtual ~BatchNormKernel() = default;

  // The mean and variance of each column of x. Sums are in f64, around the mean. One row has variance 0. No rows:
  // mean 0, variance 0.
  virtual void Statistics(const MatrixShape& shape, double epsilon, const float* x, float* mean,
                          float* inverse_sigma) = 0;

  // Adds a part of a sample, of at least one row, to `sums`: [3, columns] of pivots, distances and squares. The first
  // part overwrites them. On a CPU they are the same bits however the rows are cut into parts; on a GPU as one
  // cuts them, and the same on every GPU.
  virtual void AddToSums(const MatrixShape& shape, bool is_first, const float* x, double* sums) = 0;
  // The statistics of all parts together; shape.rows is the number of their rows, at least one.
  virtual void StatisticsOfSums(const MatrixShape& shape, double epsilon, const double* sums,
                                float* mean, float* inverse_sigma) = 0;

  // y from given statistics; y may be x.
  struct Affine {
    const float* scale = nullptr;  // null: 1
    const float* shift = nullptr;  // null: 0
  };
  virtual void Normalize(const MatrixShape& shape, const float* x, const float* mean,
                         const float* inverse_sigma, const Affine& affine, bool relu, float* y) = 0;

  // The gradient through Statistics and Normalize together.
  struct BackwardInput {
    const float* x = nullptr;
    const float* mean = nullptr;
    const float* inverse_sigma = nullptr;
    const float* scale = nullptr;  // null: 1
    const float* y = nullptr;  // what Normalize wrote, where it was asked for relu; null: no relu
    const float* dy = nullptr;
  };
  // dscale and dshift [columns] are written as `mode` says, their sums as ColumnSums'; dx [rows,
  // columns] is overwritten. A null one is not wanted. dx may be dy.
  virtual void Backward(const MatrixShape& shape, const BackwardInput& in, WriteMode mode,
                        float* dscale, float* dshift, float* dx) = 0;
};

}  // namespace tessera

#endif  // TESSERA_KERNELS_BATCH_NORM_H_
