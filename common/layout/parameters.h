// The parameters of a model, in the order that every process agrees on.
//
// Layer i with parameters contributes `layers.<i>.weight` and, if it has one, `layers.<i>.bias`: a
// linear layer's matrix [units, inputs] and vector [units]; a convolution's matrix [channels, k] and
// vector [channels], where k runs over the channels, rows and columns that one output is computed
// from, in that order; an affine batch norm's scale and shift, both [inputs], or [channels] of images.
//
// Images are flattened for a linear layer as [channels, height, width], as in PyTorch.
#ifndef TESSERA_COMMON_LAYOUT_PARAMETERS_H_
#define TESSERA_COMMON_LAYOUT_PARAMETERS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/layout/image.h"
#include "common/layout/parameter_spec.h"
#include "proto/job.pb.h"

namespace tessera {

// What follows from Model alone.
struct ModelShape {
  std::vector<ParameterSpec> parameters;
  // Width of the activations before each layer, and after the last: layers + 1 entries.
  std::vector<int64_t> widths;
  // The activations of `widths` as images, where the layer before or behind reads them as such; elsewhere a
  // channel for each neuron.
  std::vector<Image> images;
  int64_t inputs() const { return widths.front(); }
  int64_t outputs() const { return widths.back(); }
  // Sum over the parameters.
  int64_t size = 0;
};

// Fails with kInvalidArgument where the model is no model: no linear layer and no convolution, images
// where there are none, a window that does not fit, or more entries than 2^40. Of one layer's fault the
// message begins with "model.layers[i]".
absl::StatusOr<ModelShape> ShapeOf(const v1::Model& model);

// Writes the initial values of rows [row_begin, row_end) of parameter `index` to `out`, row-major.
// A pure function of its arguments: a server fills its own rows, nobody holds the model.
void FillInitialRows(const ParameterSpec& spec, int index, uint64_t seed, int64_t row_begin,
                     int64_t row_end, float* out);

}  // namespace tessera

#endif  // TESSERA_COMMON_LAYOUT_PARAMETERS_H_
