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

// Layers [begin, end), indices into ModelShape::layers.
struct LayerRange {
  int begin = 0;
  int end = 0;
};

// A model may be cut before a linear layer. Its front sends the activations there, as the host has
// images, to its back, which knows the loss and returns their gradient.
enum class ModelPart { kWhole, kFront, kBack };

struct NetworkPlan {
  ModelPart part = ModelPart::kWhole;
  // A half has its own parameters alone, as they are in the whole model's shape, the widths and images from before its
  // first layer to behind its last one, and no layers.
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
  int64_t constants = 0;
};

// kInvalidArgument where ShapeOf refuses the model.
absl::StatusOr<NetworkPlan> PlanOf(const v1::Model& model);

// The plan of the layers in front of a linear one, or of those from one on. All layers are no half: that
// is `whole`. kInvalidArgument: `layers` is none of these, or has no parameters, or `whole` is no whole,
// or one behind the cut reads more than what is directly in front of it.
absl::StatusOr<NetworkPlan> HalfOf(const NetworkPlan& whole, const LayerRange& layers);

// Whether each stage reads the one before it and nothing else.
bool IsChain(const NetworkPlan& plan);

// The offset of the first parameter that has a gradient (NetworkOptions::steps_first_weight).
int64_t GradientsBegin(const NetworkPlan& plan, bool steps_first_weight);

}  // namespace tessera

#endif  // TESSERA_WORKER_MODEL_PLAN_H_
