// One stage of a network as it is planned: which layer it computes, between which activations, with which parameters.
#ifndef TESSERA_WORKER_MODEL_STAGE_PLAN_H_
#define TESSERA_WORKER_MODEL_STAGE_PLAN_H_

#include <cstdint>
#include <vector>

#include "common/layout/image.h"
#include "common/layout/layers/layer_kind.h"
#include "proto/job.pb.h"
#include "worker/model/buffer_plan.h"

namespace tessera {

struct StageKind;

// One layer, or a batch norm with the relu behind it, or the join of a block's parts, or a change of how images lie.
//
// Images come as [channels, height, width], and go into a linear layer and out of the model so; in
// between they lie [height, width, channels], so that the channels of one place are a row, as an
// example's neurons are elsewhere.
struct StagePlan {
  const StageKind* kind = nullptr;
  // The layer's index in ModelShape::layers, its keys in the job file, and its kind. -1, none and null: a change of how
  // images lie.
  int layer = -1;
  v1::Layer settings;
  const LayerKind* layer_kind = nullptr;
  // The stages whose outputs it reads, all before it in the network's order, or kNetworkInput.
  std::vector<int> reads;
  // Channels of each of what it reads.
  std::vector<int64_t> read_channels;
  // Values of an example in what it reads first and behind it, and the same as images with the window between them.
  int64_t inputs = 0;
  int64_t outputs = 0;
  ImageMap map;
  // Indices into ModelShape.parameters; -1: it has none.
  int weight = -1;
  int bias = -1;
  int64_t weight_size = 0;
  // It multiplies with the embedding's weight, which is this parameter, and has none of its own; -1: it does not.
  int tied_weight = -1;
  // A stage behind it is tied to its weight.
  bool weight_is_tied = false;
  // A parameter that it multiplies with, its own or another stage's; -1: none.
  int factor() const { return tied_weight >= 0 ? tied_weight : weight; }
  bool learns() const { return factor() >= 0 || bias >= 0; }
  // The layer behind it, of the kind that StageKind::joins names, is part of this stage.
  bool is_joined = false;

  // Each unit of the output follows from that unit of the input alone, which it may overwrite in evaluation.
  bool is_elementwise() const {
    return layer_kind != nullptr && layer_kind->reads == LayerReads::kUnits;
  }
  bool is_off_in_evaluation() const {
    return layer_kind != nullptr && layer_kind->is_off_in_evaluation;
  }
  // Floats of evaluation constants: the mean and 1/sigma of each channel, or neuron.
  int64_t constants() const {
    return layer_kind != nullptr && layer_kind->calibrates() ? 2 * map.from.channels : 0;
  }
};

}  // namespace tessera

#endif  // TESSERA_WORKER_MODEL_STAGE_PLAN_H_
