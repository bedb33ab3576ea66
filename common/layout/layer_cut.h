// Where a model is cut in two, so that some workers train the layers in front and others those behind.
#ifndef TESSERA_COMMON_LAYOUT_LAYER_CUT_H_
#define TESSERA_COMMON_LAYOUT_LAYER_CUT_H_

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/layout/parameters.h"
#include "common/layout/shard_map.h"
#include "proto/job.pb.h"

namespace tessera {

// Parameters [begin, end) in the layout's order.
struct ParameterRange {
  int begin = 0;
  int end = 0;

  bool empty() const { return begin == end; }
  friend bool operator==(const ParameterRange& a, const ParameterRange& b) {
    return a.begin == b.begin && a.end == b.end;
  }
};

// Both halves have parameters, and as those in front are the first, each half's are a range.
struct LayerCut {
  // The first layer behind, an index into ModelShape::layers, and its first parameter.
  int layer = 0;
  int parameter = 0;
  // The numbers of layers and of parameters of the whole model.
  int layers = 0;
  int parameters = 0;

  ParameterRange front() const { return {0, parameter}; }
  ParameterRange back() const { return {parameter, parameters}; }
};

// Before the linear layer of this name, as ModelLayer::name, or before the first one where `name` is empty.
// kInvalidArgument where there is none, or nothing that learns in front of it (no convolution, where it is the first), or
// a block reaches over the cut, or ShapeOf refuses the model.
absl::StatusOr<LayerCut> CutBeforeLinear(const v1::Model& model, absl::string_view name = "");

// What a shard owns of `range`, out of all that it owns; offsets count from the first of these entries.
ShardSlices SlicesOfLayers(const ShardSlices& all, const ParameterRange& range);

}  // namespace tessera

#endif  // TESSERA_COMMON_LAYOUT_LAYER_CUT_H_
