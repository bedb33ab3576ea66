// In which order calibration goes through a network, and what it keeps on the way.
//
// The constants of a batch norm are statistics of the whole sample, and those behind it are wanted with these constants
// in place. Calibration therefore goes through the network in passes, each over all rows of the sample, piece by piece:
//
//   depth(value) = batch norms on the longest way from the network's input to the value, its own included
//   pass d       computes the values of depth d and adds up the statistics of what the batch norms of depth d + 1 read
//
// Batch norms side by side, as those of a block's branches, share a pass. Behind a pass only those values are still
// read that a later pass wants: they are what may be kept of a piece, so that the next pass need not compute it again.
#ifndef TESSERA_WORKER_MODEL_CALIBRATION_PLAN_H_
#define TESSERA_WORKER_MODEL_CALIBRATION_PLAN_H_

#include <cstdint>
#include <vector>

#include "worker/model/buffer_plan.h"
#include "worker/model/stage_plan.h"

namespace tessera {

// A value of a piece: the buffer that it lies in, and its floats for an example.
struct KeptValue {
  int buffer = kNoBuffer;
  int64_t width = 0;
};

struct CalibrationPass {
  // The stages that it computes, in order, and those whose constants it finds.
  std::vector<int> stages;
  std::vector<int> norms;
  // Whether any of them reads the network's input.
  bool reads_input = false;
  // What later passes read of what this one and those before it computed.
  std::vector<KeptValue> kept;
  int64_t kept_floats() const;  // of an example
};

struct CalibrationPlan {
  std::vector<CalibrationPass> passes;
  // By stage: the buffer of its output, kNetworkInput, or kNoBuffer for one that calibration does not compute.
  std::vector<int> outputs;
  BufferPlaces places;

  // Floats of an example that are kept behind one pass, at most.
  int64_t kept_floats_max() const;
};

// Empty where no stage has constants.
CalibrationPlan CalibrationPlanOf(const std::vector<StagePlan>& stages);

}  // namespace tessera

#endif  // TESSERA_WORKER_MODEL_CALIBRATION_PLAN_H_
