// The worker's own optimizer, where it takes local steps between exchanges.
#ifndef TESSERA_WORKER_MODEL_LOCAL_OPTIMIZER_H_
#define TESSERA_WORKER_MODEL_LOCAL_OPTIMIZER_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/rule/optimizer.h"
#include "common/rule/rule.h"
#include "kernels/backend.h"
#include "kernels/host_view.h"
#include "proto/job.pb.h"
#include "worker/model/gradient_work.h"
#include "worker/model/muon.h"
#include "worker/model/network.h"

namespace tessera {

// Owns the optimizer's state for one network: as many floats as it has parameters for each of
// StateNames (common/rule/optimizer.h).
//
// Where the network takes work each parameter may be stepped as soon as its gradient is there: Begin,
// then a step of the network with this as its work.
//
// Threading: the network's thread.
class LocalOptimizer final : public GradientWork {
 public:
  // Both outlive the optimizer.
  //   kInvalidArgument    `optimizer` names no kind
  //   kResourceExhausted  no memory
  // states() are there for a device whose memory is out of the host's reach only where
  // `shows_states`.
  static absl::StatusOr<std::unique_ptr<LocalOptimizer>> Create(const v1::Optimizer& optimizer,
                                                                Network& network, Backend& backend,
                                                                bool shows_states = false);

  // Entries without gradient stay what they are, and nothing is kept for them: the network may have
  // Options::steps_first_weight.
  static bool LeavesZeroGradients(const v1::Optimizer& optimizer);

  // Whether parameters may be stepped one by one, as their gradients come: not so where a step works in room of its own
  // that repeated steps do not know (Muon). Then Step alone is called.
  bool follows_gradients() const { return muon_ == nullptr; }

  // Bytes of state and room, for the worker's sum.
  static int64_t MemoryNeeded(const v1::Optimizer& optimizer, const NetworkPlan& plan);

  // Moves the parameters by the gradients that TrainStep left, and leaves them rounded where
  // Network::rounded wants that. Queued: a failure that is not known
  // yet is the next call's, or Backend::Finish's.
  absl::Status Step(const Update& update);
  // What follows is of this update. Queued.
  void Begin(const Update& update);
  void Queue(int i) override;
  bool QueueProduct(int i, const WeightProduct& product) override;
  // The state becomes zero, as it was made. Queued.
  absl::Status Reset();

  // One view per state, in the order of StateNames, laid out as NetworkArrays::parameters(). Between
  // calls the caller may write them; after SendStates the next step goes on from there. They live as
  // long as the optimizer.
  std::vector<absl::Span<float>> states() const;
  // The states as kernels address them.
  const std::vector<float*>& device_states() const { return state_addresses_; }
  // states() show what the device has, once its work is finished.
  void FetchStates() {
    for (HostView<float>& view : views_) view.Fetch();
  }
  // Queued, as NetworkArrays::SendParameters.
  void SendStates() {
    for (HostView<float>& view : views_) view.Send();
  }
  // Sends parameter i's part of state s.
  void SendState(int s, int i) {
    views_[s].Send(network_.plan().parameter_offsets[i], network_.shape().parameters[i].size());
  }

 private:
  LocalOptimizer(const v1::Optimizer& optimizer, Network& network, Backend& backend)
      : optimizer_(IsRule(optimizer) ? optimizer : AdamWOf(optimizer.muon())),
        state_names_(StateNames(optimizer)),
        kernel_(backend.vector().MakeOptimizer(optimizer_)),
        first_weight_rate_(static_cast<float>(optimizer.sgd().learning_rate())),
        network_(network),
        backend_(backend) {}

  // Moves parameter i, which is a matrix, by Muon's step.
  void StepMatrix(int i, float rate);

  // The job's optimizer; where that is muon, the AdamW beside it.
  const v1::Optimizer optimizer_;
  const std::vector<std::string> state_names_;
  const std::unique_ptr<OptimizerKernel> kernel_;
  std::unique_ptr<Muon> muon_;  // where the optimizer is
  // The rate of plain sgd, where the network steps its first weight itself.
  const float first_weight_rate_;
  Network& network_;
  Backend& backend_;
  bool rounds_ = false;  // some parameters for products in bf16 (TrainingPass::rounded)
  std::vector<Buffer<float>> states_;
  std::vector<HostView<float>> views_;  // where they are shown
  std::vector<float*> state_addresses_;
};

}  // namespace tessera

#endif  // TESSERA_WORKER_MODEL_LOCAL_OPTIMIZER_H_
