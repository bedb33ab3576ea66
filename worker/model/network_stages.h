// The stages of a network, and the device memory that its passes share.
#ifndef TESSERA_WORKER_MODEL_NETWORK_STAGES_H_
#define TESSERA_WORKER_MODEL_NETWORK_STAGES_H_

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "kernels/host_view.h"
#include "worker/model/network_arrays.h"
#include "worker/model/network_memory.h"
#include "worker/model/network_options.h"
#include "worker/model/plan.h"
#include "worker/model/sparse_linear_stage.h"
#include "worker/model/stage.h"
#include "worker/model/step_numbers.h"

namespace tessera {

// Holds no state between passes but what stages remember from Forward to Backward.
class NetworkStages {
 public:
  // `plan`, `arrays` and `backend` outlive the stages.
  //   kResourceExhausted   no memory
  //   kFailedPrecondition  tf32 or bf16 on a device without it
  static absl::StatusOr<std::unique_ptr<NetworkStages>> Create(const NetworkPlan& plan,
                                                               const NetworkOptions& options,
                                                               const NetworkArrays& arrays,
                                                               Backend& backend);

  // Stage i of the plan. Where rows are sparse the first is not among them.
  Stage& stage(int i) const { return *stages_[i]; }
  // The stage that reads sparse rows in the first one's place; null where rows are dense.
  SparseLinearStage* sparse_first() const { return sparse_first_.get(); }
  // Where the stage that multiplies with parameter i keeps it rounded; null: nowhere.
  Bf16* rounded(int i) const { return rounded_[i]; }

  const NetworkBuffers& buffers() const { return buffers_; }
  // The address of one of them; null for kNetworkInput and kNoBuffer.
  float* buffer(int i) const { return i < 0 ? nullptr : memory_at(buffers_.offsets[i]); }
  // What is so many floats of an example behind the beginning of their memory.
  float* memory_at(int64_t floats) const { return memory_.data() + batch_max_ * floats; }
  // The addresses of `buffers`.
  std::vector<float*> AddressesOf(const std::vector<int>& buffers) const;

  // The numbers of the step under way; null where the network only evaluates.
  StepNumbers* numbers() const { return numbers_.data(); }

  // The sums of losses, kStepsBegunMax places of a network that trains, one of another.
  LossSums* sums() const { return sums_.data(); }
  HostView<LossSums>& sums_view() { return sums_view_; }

 private:
  NetworkStages(NetworkBuffers buffers, int64_t batch_max)
      : buffers_(std::move(buffers)), batch_max_(batch_max) {}

  const NetworkBuffers buffers_;
  const int64_t batch_max_;
  Buffer<float> memory_;
  Buffer<StepNumbers> numbers_;
  Buffer<LossSums> sums_;
  HostView<LossSums> sums_view_;
  Buffer<Bf16> dy_bf16_;
  std::vector<std::unique_ptr<Stage>> stages_;
  std::unique_ptr<SparseLinearStage> sparse_first_;
  std::vector<Bf16*> rounded_;  // by parameter
};

}  // namespace tessera

#endif  // TESSERA_WORKER_MODEL_NETWORK_STAGES_H_
