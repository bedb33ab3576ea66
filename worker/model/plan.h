// What a network will hold, worked out from the job alone: its stages, where each parameter lies,
// and the bytes of it all.
#ifndef TESSERA_WORKER_MODEL_PLAN_H_
#define TESSERA_WORKER_MODEL_PLAN_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "common/layout/parameters.h"
#include "proto/job.pb.h"
#include "worker/model/precision.h"
#include "worker/model/stage_kind.h"
#include "worker/model/stage_plan.h"

namespace tessera {

// Steps of a network that may be begun before the first of them is ended.
constexpr int kStepsBegunMax = 2;

// Layers [begin, end), indices into Model.layers.
struct LayerRange {
  int begin = 0;
  int end = 0;
};

// A model may be cut before a linear layer. Its front sends the activations there, as the host has
// images, to its back, which knows the loss and returns their gradient.
enum class ModelPart { kWhole, kFront, kBack };

struct NetworkPlan {
  ModelPart part = ModelPart::kWhole;
  // Of a half: its parameters alone, as they are in the whole model's shape, and the widths and images
  // from before its first layer to behind its last one.
  ModelShape shape;
  // The first parameter's index in the whole model.
  int parameter_begin = 0;
  // Their layers are the whole model's.
  std::vector<StagePlan> stages;
  // In floats, a multiple of 16, so that each parameter begins on a cache line.
  std::vector<int64_t> parameter_offsets;
  int64_t parameter_floats = 0;
  // The most that one stage has of them.
  int64_t stage_floats_max = 0;
  // The widest output of a stage.
  int64_t width_max = 0;
  int64_t constants = 0;
};

// kInvalidArgument where ShapeOf refuses the model.
absl::StatusOr<NetworkPlan> PlanOf(const v1::Model& model);

// The plan of the layers in front of a linear one, or of those from one on. All layers are no half: that
// is `whole`. kInvalidArgument: `layers` is none of these, or has no parameters, or `whole` is no whole.
absl::StatusOr<NetworkPlan> HalfOf(const NetworkPlan& whole, const LayerRange& layers);

struct NetworkMemory {
  // Held from Create on.
  int64_t held_bytes = 0;
  // Of them, by a network that evaluates only.
  int64_t evaluation_bytes = 0;
  // More while Calibrate runs.
  int64_t calibration_bytes = 0;
};

// Calibration sends all its rows from layer to layer, between two arrays of so many floats a row. A stage
// that is not elementwise reads one and writes the other; the first one writes the second.
struct CalibrationWidths {
  int64_t first = 0;
  int64_t second = 0;
};
// `copies_inputs`: the rows' inputs come into the first array. With `sparse_input` what the first
// stage makes of them does.
CalibrationWidths CalibrationWidthsOf(const NetworkPlan& plan, bool copies_inputs,
                                      bool sparse_input);

// The offset of the first parameter that has a gradient (Network::Options::steps_first_weight).
int64_t GradientsBegin(const NetworkPlan& plan, bool steps_first_weight);

// All that a Network allocates for `batch_max` rows. Besides, oneDNN keeps its generated code and
// some hundred KiB of scratch for each product and thread (of convolutions up to some MiB, in bf16 and without
// AVX-512 tens of MiB where images are large), and products with sparse rows keep
// SparseScratchBytes. `minibatch_max` as Network::Options'. A half calibrates nothing.
NetworkMemory MemoryNeeded(const NetworkPlan& plan, int64_t batch_max, Precision precision,
                           int64_t calibration_rows, bool sparse_input = false,
                           bool steps_first_weight = false, int64_t minibatch_max = 0);

}  // namespace tessera

#endif  // TESSERA_WORKER_MODEL_PLAN_H_
