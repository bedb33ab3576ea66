// How the layers of one kind are computed: the columns of the table in stage_kinds.cc.
#ifndef TESSERA_WORKER_MODEL_STAGE_KIND_H_
#define TESSERA_WORKER_MODEL_STAGE_KIND_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "proto/job.pb.h"
#include "worker/model/precision.h"
#include "worker/model/stage.h"
#include "worker/model/stage_plan.h"

namespace tessera {

// What a stage is made for. All addresses are the backend's.
struct StageOptions {
  Precision precision = Precision::kF32;
  int64_t batch_max = 0;
  // Forward and Backward are called, not Evaluate alone.
  bool trains = false;
  StageParameters parameters;
  // For products in bf16: room for the rounded gradient of the widest product's outputs, shared by all stages.
  Bf16* dy_bf16 = nullptr;
  // The step under way, for what is drawn at random in training.
  const DropoutKey* dropout = nullptr;
};

// An entry describes the stages of its kind by constants and functions without state.
struct StageKind {
  // The layers that it computes. KIND_NOT_SET: none that a job may name.
  v1::Layer::KindCase layer;
  //   kResourceExhausted   no memory
  //   kFailedPrecondition  tf32 or bf16, and the device has none
  absl::StatusOr<std::unique_ptr<Stage>> (*make)(const StagePlan& plan, const StageOptions& options,
                                                 Backend& backend);

  // Multiplies with its weight. In bf16 it keeps rounded copies of the weight and of its inputs.
  bool is_product = false;
  // Rows of its weight may be multiplied block by block, each giving some of its outputs.
  bool works_by_rows = false;
  // Draws at random in training, keyed by the step.
  bool draws = false;
  // A layer of this kind directly behind it is computed by the same stage.
  v1::Layer::KindCase joins = v1::Layer::KIND_NOT_SET;

  // In training Forward may write y over x, and Backward dx over dy.
  bool forward_in_place = false;
  bool backward_in_place = false;
  // Backward reads x or y as Forward left them.
  bool backward_reads_x = true;
  bool backward_reads_y = true;
  // Backward reads no more of y than which values are positive. A stage behind it may then work in place, which leaves
  // them positive or passes them no gradient.
  bool reads_signs_of_y = false;
  // Backward reads y where a layer has joined the stage (`joins`).
  bool joined_reads_y = false;
  // Forward leaves the values positive that are positive, or Backward passes them no gradient.
  bool keeps_signs = false;

  // Floats that a stage that trains allocates for itself, in any precision. Null: none.
  int64_t (*kept_floats)(const StagePlan& plan) = nullptr;
  // Bytes that the kernels of a device take for so many rows besides (ConvolutionKernel::ScratchBytes), in evaluation
  // or training, whichever is more. kFailedPrecondition: no such precision. Null: none.
  absl::StatusOr<int64_t> (*scratch_bytes)(const StagePlan& plan, int64_t rows, Precision precision,
                                           Backend& backend) = nullptr;
};

// For kinds whose stages cannot fail to be made.
template <typename T>
absl::StatusOr<std::unique_ptr<Stage>> MakeStage(const StagePlan& plan, const StageOptions& options,
                                                 Backend& backend) {
  return std::make_unique<T>(plan, options, backend);
}

}  // namespace tessera

#endif  // TESSERA_WORKER_MODEL_STAGE_KIND_H_
