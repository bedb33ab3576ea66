// A worker's model: parameters, gradients, and the passes over a batch.
#ifndef TESSERA_WORKER_MODEL_NETWORK_H_
#define TESSERA_WORKER_MODEL_NETWORK_H_

#include <memory>

#include "absl/status/statusor.h"
#include "common/base/check.h"
#include "kernels/backend.h"
#include "proto/job.pb.h"
#include "worker/model/back_half.h"
#include "worker/model/network_evaluation.h"
#include "worker/model/front_half.h"
#include "worker/model/network_arrays.h"
#include "worker/model/network_input.h"
#include "worker/model/network_options.h"
#include "worker/model/network_stages.h"
#include "worker/model/plan.h"
#include "worker/model/training_pass.h"
#include "worker/model/training_steps.h"

namespace tessera {

// Owns the parts of a network, which share one plan and one set of buffers:
//
//   arrays       parameters and gradients, as the exchange and optimizers see them
//   input        how batches come to it
//   steps        steps of training; front and back: those of a model's halves
//   pass         a step's kernels, and what an optimizer tells them
//   evaluation   calibration and scores
//
// It allocates all that MemoryNeeded says when it is made, and nothing more later, but for the three places that
// batches have on a device whose memory is out of the host's reach, and what Calibrate takes while it runs.
//
// Threading: one thread at a time, the backend's.
class Network {
 public:
  using Options = NetworkOptions;

  // Parameters and gradients start at zero. `backend` outlives the network.
  //   kInvalidArgument     no such model or loss, batch_max below 1, sparse_input for a model whose first
  //                        layer is not linear, or a half that HalfOf refuses, or with sparse_input or
  //                        evaluates_only
  //   kResourceExhausted   no memory
  //   kFailedPrecondition  tf32 or bf16 on a device without it
  static absl::StatusOr<std::unique_ptr<Network>> Create(const v1::Model& model,
                                                         const Options& options, Backend& backend);

  const NetworkPlan& plan() const { return plan_; }
  const ModelShape& shape() const { return plan_.shape; }

  NetworkArrays& arrays() { return *arrays_; }
  const NetworkArrays& arrays() const { return *arrays_; }
  NetworkInput& input() { return input_; }
  NetworkEvaluation& evaluation() { return *evaluation_; }
  // Not where the network only evaluates.
  TrainingSteps& steps() { return Made(steps_); }
  TrainingPass& pass() { return Made(pass_); }
  FrontHalf& front() { return Made(front_); }
  BackHalf& back() { return Made(back_); }

 private:
  Network(const v1::Model& model, const Options& options, NetworkPlan plan, Backend& backend);
  absl::Status Allocate(const Options& options, Backend& backend);
  template <typename T>
  static T& Made(const std::unique_ptr<T>& part) {
    TESSERA_CHECK(part != nullptr);
    return *part;
  }

  const v1::Model model_;
  const NetworkPlan plan_;
  NetworkInput input_;
  std::unique_ptr<NetworkArrays> arrays_;
  std::unique_ptr<NetworkStages> stages_;
  std::unique_ptr<TrainingPass> pass_;
  std::unique_ptr<TrainingSteps> steps_;
  std::unique_ptr<FrontHalf> front_;
  std::unique_ptr<BackHalf> back_;
  std::unique_ptr<NetworkEvaluation> evaluation_;
};

}  // namespace tessera

#endif  // TESSERA_WORKER_MODEL_NETWORK_H_
