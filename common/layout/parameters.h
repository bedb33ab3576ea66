// The parameters of a model, in the order that every process agrees on.
//
// Layer i with parameters contributes `layers.<i>.weight` and, if it has one, `layers.<i>.bias`: a
// linear layer's matrix [units, inputs] and vector [units]; a convolution's matrix [channels, k] and
// vector [channels], where k runs over the channels, rows and columns that one output is computed
// from, in that order; an affine batch norm's scale and shift, both [inputs], or [channels] of images.
//
// An embedding's matrix [vocabulary, units] and its `positions` [context, units], if it has them; an attention layer's
// `in_proj_weight` [3 x heads x head size, units], `in_proj_bias`, `out_proj.weight` and `out_proj.bias`.
//
// Images are flattened for a linear layer as [channels, height, width], as in PyTorch. In a model of tokens layers act
// on each place of the sequence, and parameters are as if there were no places.
#ifndef TESSERA_COMMON_LAYOUT_PARAMETERS_H_
#define TESSERA_COMMON_LAYOUT_PARAMETERS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/layout/image.h"
#include "common/layout/layers/layer_kind.h"
#include "common/layout/parameter_spec.h"
#include "common/layout/tensor_groups.h"
#include "proto/job.pb.h"

namespace tessera {

// In ModelLayer::reads: what the model reads.
constexpr int kModelInput = -1;

// One layer as it is computed.
struct ModelLayer {
  // The name with which those of its parameters begin, as the same nesting has it in PyTorch: "layers.4.shortcut.0".
  std::string name;
  // Its keys in the job file; of a block none but the kind. `kind` is its entry in the table.
  v1::Layer settings;
  const LayerKind* kind = nullptr;
  // The layers whose outputs it reads, all before it in ModelShape::layers, or kModelInput. Only blocks read several.
  std::vector<int> reads;
  // Its units are heads: a place of its output is [unit_times, heads, unit_each]. Elsewhere each channel is a unit.
  int64_t unit_times = 1;
  int64_t unit_each = 1;
  // The parameter of an embedding that it multiplies with instead of one of its own; -1: none.
  int tied_to = -1;
};

// What follows from Model alone. A job of tensors (tensor_layout.h) has parameters, their size and groups, and nothing
// else of it.
struct ModelShape {
  // In the order in which they are computed, blocks and repeats written out: the layers of a block, and behind them
  // the block itself, which joins their outputs. The last one's output is the model's.
  std::vector<ModelLayer> layers;
  std::vector<ParameterSpec> parameters;
  // Width of what the model reads, and of each layer's output: layers + 1 entries.
  std::vector<int64_t> widths;
  // The activations of `widths` as images, where the layer before or behind reads them as such; elsewhere a
  // channel for each neuron.
  std::vector<Image> images;
  // What a layer reads first.
  const Image& before(int layer) const {
    return images[static_cast<size_t>(layers[static_cast<size_t>(layer)].reads[0] + 1)];
  }
  // 0 where there are no layers, as for `outputs`.
  int64_t inputs() const { return widths.empty() ? 0 : widths.front(); }
  // The scores of one prediction: of a row, or of one place of a sequence.
  int64_t outputs() const { return widths.empty() ? 0 : widths.back() / places(); }
  // The predictions of a row, each of which has a label: the places of a sequence.
  int64_t places() const { return images.empty() ? 1 : images.back().places(); }
  // The tokens that there are; 0: it is no model of tokens.
  int64_t vocabulary = 0;
  // Sum over the parameters.
  int64_t size = 0;
  // What subnets cut in a job of tensors; where there are layers it follows from these (common/keyset/subnet.h).
  std::vector<TensorGroup> groups;
};

// Fails with kInvalidArgument where the model is no model: no linear layer and no convolution, images or a sequence
// where there are none, a window that does not fit, parts of a block that do not, or more than 4096 layers or 2^40
// entries. A fault of one layer begins with where it is: "model.layers[4].residual.layers[0]: ". Of a job of tensors it
// fails where ParametersOf or TensorGroupsOf does.
absl::StatusOr<ModelShape> ShapeOf(const v1::Model& model);

// Writes the initial values of rows [row_begin, row_end) of parameter `index` to `out`, row-major.
// A pure function of its arguments: a server fills its own rows, nobody holds the model.
void FillInitialRows(const ParameterSpec& spec, int index, uint64_t seed, int64_t row_begin,
                     int64_t row_end, float* out);

}  // namespace tessera

#endif  // TESSERA_COMMON_LAYOUT_PARAMETERS_H_
