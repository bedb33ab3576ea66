// The kernels of a network's steps, repeated where the device does that at less cost than they are queued.
#ifndef TESSERA_WORKER_MODEL_STEP_SEQUENCES_H_
#define TESSERA_WORKER_MODEL_STEP_SEQUENCES_H_

#include <memory>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "kernels/backend.h"
#include "worker/model/batch.h"
#include "worker/model/gradient_work.h"

namespace tessera {

// What differs between one step's kernels and another's, beside the work that follows gradients.
struct StepForm {
  Batch batch;         // as it was staged
  int sums_place = 0;  // where the sums of its loss go
  bool rounds = true;  // the weights, in bf16
};

class StepSequences {
 public:
  // Without `repeats` everything is queued anew, as where rows are sparse, which lie elsewhere each time.
  StepSequences(bool repeats, Backend& backend) : repeats_(repeats), backend_(backend) {}

  // Queues what `queue` queues (Sequence::Run), which is the same for all steps of this form, and in the backward pass
  // with this work.
  void Forward(const StepForm& form, absl::FunctionRef<void()> queue);
  void Backward(const StepForm& form, const GradientWork* work, absl::FunctionRef<void()> queue);

 private:
  struct Repeated {
    StepForm form;
    std::unique_ptr<Sequence> forward;
    // The backward pass with each work that follows it.
    std::vector<std::pair<const GradientWork*, std::unique_ptr<Sequence>>> backward;
  };
  Repeated& RepeatedOn(const StepForm& form);

  const bool repeats_;
  Backend& backend_;
  std::vector<Repeated> repeated_;
};

}  // namespace tessera

#endif  // TESSERA_WORKER_MODEL_STEP_SEQUENCES_H_
