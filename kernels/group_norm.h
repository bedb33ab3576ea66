// Normalisation of a row's values in groups.
//
//   mean_g = sum_i x_i / n      variance_g = sum_i (x_i - mean_g)^2 / n      over the n values of group g of the row
//   inverse_sigma_g = 1 / sqrt(variance_g + epsilon)
//   y_i = scale_c (x_i - mean_g) inverse_sigma_g + shift_c
//
// Wu, He: Group Normalization, ECCV 2018. With one position and one group it is layer normalisation: Ba, Kiros, Hinton:
// Layer Normalization, 2016.
#ifndef TESSERA_KERNELS_GROUP_NORM_H_
#define TESSERA_KERNELS_GROUP_NORM_H_

#include <cstdint>

#include "kernels/shape.h"
#include "kernels/write_mode.h"

namespace tessera {

// Rows of `positions` times `channels` values, the channels of a position one beside the other. A group is
// channels / groups channels, one beside the other, at all positions. All but `rows` are at least 1.
struct GroupsShape {
  int64_t rows = 0;
  int64_t positions = 1;
  int64_t channels = 1;
  int64_t groups = 1;

  int64_t row_size() const { return positions * channels; }
  int64_t size() const { return rows * row_size(); }
  int64_t group_channels() const { return channels / groups; }
};

// Sums are in f64.
class GroupNormKernel {
 public:
  virtual ~GroupNormKernel() = default;

  // Both [channels].
  struct Affine {
    const float* scale = nullptr;  // null: 1
    const float* shift = nullptr;  // null: 0
  };
  // Writes y, and the statistics, [rows, groups] each. y may be x.
  virtual void Forward(const GroupsShape& shape, double epsilon, const float* x,
                       const Affine& affine, float* mean, float* inverse_sigma, float* y) = 0;

  struct BackwardInput {
    const float* x = nullptr;
    const float* mean = nullptr;           // what Forward wrote
    const float* inverse_sigma = nullptr;  // what Forward wrote
    const float* scale = nullptr;          // null: 1
    const float* dy = nullptr;
  };
  // dscale and dshift [channels] are written as `mode` says; dx is overwritten. A null one is not wanted. dx may be dy.
  virtual void Backward(const GroupsShape& shape, const BackwardInput& in, WriteMode mode,
                        float* dscale, float* dshift, float* dx) = 0;
};

}  // namespace tessera

#endif  // TESSERA_KERNELS_GROUP_NORM_H_
