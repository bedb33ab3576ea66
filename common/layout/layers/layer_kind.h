// What a kind of layer is, as far as it follows from the job alone: the columns of the table in layer_kinds.cc.
//
// Servers, workers, the checks of the job file and the commands ask this table instead of naming kinds. What a
// layer computes is in worker/model/stages.
#ifndef TESSERA_COMMON_LAYOUT_LAYERS_LAYER_KIND_H_
#define TESSERA_COMMON_LAYOUT_LAYERS_LAYER_KIND_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/layout/image.h"
#include "common/layout/parameter_spec.h"
#include "proto/job.pb.h"

namespace tessera {

// The number of entries of a model, and of one of its layers, is at most this.
constexpr int64_t kModelSizeMax = int64_t{1} << 40;

// How a layer looks at what comes before it.
enum class LayerReads {
  // Each value or each unit (a neuron, or a channel of images) by itself. There are as many units behind it.
  kUnits,
  // A row of features, or an image, as it comes, and several of its units together. There are as many behind it.
  kUnitsTogether,
  // Images, which no layer makes out of features.
  kImages,
  // A row of features. Images are flattened for it, as [channels, height, width]; of a sequence it reads each place.
  kFeatures,
  // A sequence of tokens, which models of tokens alone have.
  kSequence,
  // The outputs of a block's parts.
  kParts
};

// One layer of a model behind activations of a known shape.
struct LayerShape {
  // From the activations before the layer to those behind it.
  ImageMap map;
  // In the layout's order, a weight before its bias. The names are those within the layer ("weight"); `layer` is
  // not set.
  std::vector<ParameterSpec> parameters = {};
};

// An entry describes itself by constants and functions without state. A null function says that layers of this
// kind have no such thing.
struct LayerKind {
  v1::Layer::KindCase kind_case;
  LayerReads reads;
  // The shape of `layer` behind `before`, or kInvalidArgument with the key and what is wanted of it. `vocabulary` is
  // that of a model of tokens, 0 for others. Null for a block.
  absl::StatusOr<LayerShape> (*shape)(const v1::Layer& layer, const Image& before,
                                      int64_t vocabulary) = nullptr;
  // What a block makes of the outputs of its parts (block.h), or kInvalidArgument where they do not fit. Null for
  // all other layers.
  absl::StatusOr<Image> (*join)(absl::Span<const Image> parts) = nullptr;

  // Its weights alone make a model worth training, which needs one such layer at least.
  bool learns = false;
  // As the first layer it may read rows of which only the entries that are not zero are given.
  bool reads_sparse = false;
  // In evaluation the layer returns what it reads.
  bool is_off_in_evaluation = false;

  // Makes units, neurons or channels, that subnets may deal out to sites: how many, and `layer` with another number.
  int64_t (*units)(const v1::Layer& layer) = nullptr;
  void (*set_units)(int64_t units, v1::Layer* layer) = nullptr;

  // Normalises each unit by the minibatch's statistics, in whose place evaluation needs calibrated constants: the
  // epsilon that is added to the variance.
  double (*epsilon)(const v1::Layer& layer) = nullptr;

  // Each unit behind the layer depends on several in front of it by more than its weights, so that a subnet has all of
  // both. Null: never.
  bool (*mixes_units)(const v1::Layer& layer) = nullptr;

  // A layer that makes units and of which a subnet has all that it reads, or all that it makes.
  bool reads_whole = false;
  bool makes_whole = false;

  bool makes_units() const { return units != nullptr; }
  bool keeps_whole(const v1::Layer& layer) const {
    return join != nullptr || (mixes_units != nullptr && mixes_units(layer));
  }
  bool calibrates() const { return epsilon != nullptr; }
};

// The shape behind a layer that leaves it as it is and has no parameters.
inline absl::StatusOr<LayerShape> ShapeOfUnits(const v1::Layer&, const Image& before, int64_t) {
  return LayerShape{{before, before, {}}};
}

// A weight [rows, columns] with PyTorch's initial values, U(-1/sqrt(columns), 1/sqrt(columns)), and behind it its
// bias, if there is one, with those of the weight.
std::vector<ParameterSpec> WeightAndBias(int64_t rows, int64_t columns, bool has_bias);

}  // namespace tessera

#endif  // TESSERA_COMMON_LAYOUT_LAYERS_LAYER_KIND_H_
