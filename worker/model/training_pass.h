// The kernels of a step of training: the forward pass, the loss, and the backward pass.
#ifndef TESSERA_WORKER_MODEL_TRAINING_PASS_H_
#define TESSERA_WORKER_MODEL_TRAINING_PASS_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "proto/job.pb.h"
#include "worker/model/activation_addresses.h"
#include "worker/model/batch.h"
#include "worker/model/gradient_delivery.h"
#include "worker/model/gradient_work.h"
#include "worker/model/network_arrays.h"
#include "worker/model/network_options.h"
#include "worker/model/network_stages.h"
#include "worker/model/plan.h"
#include "worker/model/sparse_first_layer.h"
#include "worker/model/step_sequences.h"

namespace tessera {

// Queues them and waits for nothing. Activations and gradients lie in the buffers of NetworkBuffers::training.
//
// Threading: one thread at a time, the backend's.
class TrainingPass {
 public:
  // The arguments outlive it. kResourceExhausted: no memory.
  static absl::StatusOr<std::unique_ptr<TrainingPass>> Create(
      const v1::Model& model, const NetworkPlan& plan, const NetworkOptions& options,
      NetworkStages& stages, NetworkArrays& arrays, Backend& backend);

  // For the passes over a batch that NetworkInput took. `sums_place`: where the sums of its loss go.
  StepForm Begin(const Batch& staged, const StepKey& key, int sums_place);
  // The outputs of the stages and, but in a model's front, the sums of the loss and the gradient of the last output.
  void Forward(const StepForm& form);
  // The gradients of all parameters and, in a model's back, of its input. `work` follows the gradients that no other
  // batch or piece will add to; it may be null, and else stays for as long as the network takes steps.
  void Backward(const StepForm& form, GradientWork* work);
  // In a model's back, as others wait for the gradient of its input, Backward leaves the gradients of the first stage,
  // if that is a product, for this: once behind each Backward, the batch being where it was, and no other pass begun.
  void FinishBackward();

  // The device's addresses of the last output, of its gradient, and of that of a back's input.
  float* output() const { return activations_.output(last()); }
  float* output_gradient() const { return gradients_[last()]; }
  float* input_gradient() const { return input_gradient_; }
  // The rows of the batch that was begun last; 0: none was.
  int64_t rows_begun() const { return rows_begun_; }

  // What an optimizer's kernels read in this network's steps.
  OptimizerNumbers* optimizer_numbers() const { return &stages_.numbers()->optimizer; }
  // Where an optimizer that moves parameter i leaves it rounded as well, for products in bf16; null: nowhere.
  Bf16* rounded(int i) const { return stages_.rounded(i); }
  // The optimizer's step, which did so, was the last thing that moved parameters: the next step need not
  // round them.
  void KeepRounded() { keeps_rounded_ = true; }

  bool steps_first_weight() const { return steps_first_weight_; }
  // Where steps_first_weight: adds `a` times the first weight's gradient to it, in the columns of
  // the minibatch alone. Directly behind the step, while its rows are still there. Queued.
  void StepFirstWeight(float a) { sparse_first_->Step(a); }

 private:
  TrainingPass(const v1::Model& model, const NetworkPlan& plan, const NetworkOptions& options,
               NetworkStages& stages, Backend& backend);
  int last() const { return static_cast<int>(plan_.stages.size()) - 1; }
  void QueueForward(const StepForm& form);
  void QueueBackward(const Batch& batch, GradientWork* work);
  void BackwardOf(int i, const Batch& batch, GradientWork* work);
  // Adds the parts of gradients that stage i wrote elsewhere because others have written to the sums before.
  void AddParts(int i, int64_t rows);
  bool leaves_first_stage() const {
    return plan_.part == ModelPart::kBack && plan_.stages[0].kind->is_product;
  }

  const v1::Model& model_;
  const NetworkPlan& plan_;
  const bool steps_first_weight_;
  NetworkStages& stages_;
  Backend& backend_;
  std::unique_ptr<GradientDelivery> delivery_;
  std::unique_ptr<SparseFirstLayer> sparse_first_;  // where rows are sparse
  StepSequences sequences_;
  ActivationAddresses activations_;
  // By stage: the gradient of its output, null where nothing wants it, and where those of what it reads are written.
  std::vector<float*> gradients_;
  std::vector<std::vector<float*>> input_gradients_;
  float* input_gradient_ = nullptr;
  bool draws_ = false;
  bool keeps_rounded_ = false;
  int64_t rows_begun_ = 0;
  // What FinishBackward goes on with.
  struct Left {
    Batch batch;
    GradientWork* work = nullptr;
  };
  std::optional<Left> left_;
};

}  // namespace tessera

#endif  // TESSERA_WORKER_MODEL_TRAINING_PASS_H_
