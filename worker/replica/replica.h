// A worker's copy of what it trains, and what becomes of it between two exchanges.
#ifndef TESSERA_WORKER_REPLICA_REPLICA_H_
#define TESSERA_WORKER_REPLICA_REPLICA_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/base/ids.h"
#include "common/method/recipe.h"
#include "kernels/backend.h"
#include "kernels/host_view.h"
#include "kernels/memory.h"
#include "proto/job.pb.h"
#include "worker/data/dataset.h"
#include "worker/exchange/device_sides.h"
#include "worker/exchange/fragment_keys.h"
#include "worker/exchange/parameter_client.h"
#include "worker/model/local_optimizer.h"
#include "worker/model/network.h"
#include "worker/replica/batch_rows.h"
#include "worker/replica/minibatch_steps.h"
#include "worker/train/learner.h"

namespace tessera {

// The local optimizer moves the columns of a batch alone, rather than a whole matrix by a gradient
// that is nearly all zeros (NetworkOptions::steps_first_weight).
bool StepsColumns(const v1::Job& job, const Recipe& recipe, const InputRows& input);

// The model, its gradient, and with a local optimizer its state and the values of the last pull.
//
// What is exchanged are the parameters, and where the recipe averages states, each state of the
// local optimizer after them, as ExchangedShape has it. Such states are the job's: the optimizer's
// updates are then counted by the job's steps. Its own states are counted by its own steps.
//
// values() and update() lie in the host's memory. Where the backend's is out of its reach, parameters,
// gradient, state and pulled values live there all the same, and what is exchanged has a copy:
//   gradient   comes layer by layer as the backward pass goes on
//   delta      is formed on the device, and comes, layer by layer as the last step's backward pass goes on
//   values     go there parameter by parameter, as they come from the servers
// Where exchanges go on beside training, the values that come have arrays of their own, and so has what is
// on its way: one base of the next delta is written while the other, now a delta, is sent. Where exchanges are of
// fragments one base is enough, as the delta that is on its way and the next one are of different entries; it has the
// values that the servers had at each fragment's last exchange.
//
// Where DeviceSides says so update(), or values(), are the device's arrays themselves, and no copy of all
// entries crosses but in an evaluation.
//
// It has more fields than other classes: each array that an exchange reads or writes, by the side that it lies on.
//
// One thread, the train loop's. No allocation after Create but in evaluations.
class Replica final : public Learner {
 public:
  // `backend` outlives the replica.
  //   kResourceExhausted   no memory
  //   kFailedPrecondition  the job's precision is not to be had on this machine
  //   kUnimplemented       the method trains subnets: SubnetReplica does
  // Without `input` it reads all rows dense. `first`: its first exchange.
  static absl::StatusOr<std::unique_ptr<Replica>> Create(const v1::Job& job, const Recipe& recipe,
                                                         Rank rank, Backend* backend,
                                                         const InputRows& input = {},
                                                         Exchange first = Exchange(1));

  // Bytes that a replica of this job takes, evaluation included; `calibration_rows` are its sample.
  static absl::StatusOr<int64_t> MemoryNeeded(const v1::Job& job, const Recipe& recipe,
                                              int64_t calibration_rows,
                                              const InputRows& input = {});
  // Bytes of the arrays that its private_state() shows, where checkpoints are kept.
  static absl::StatusOr<int64_t> PrivateStateBytes(const v1::Job& job, const Recipe& recipe);

  // For a gradient update() is the gradient itself, for a delta the change since the last pull.
  const ParameterArrays& values() const override { return values_; }
  const KeySet& value_keys() const override {
    if (fragments_ != nullptr) return fragments_->value_keys();
    return core_ ? core_->value_keys() : keys_;
  }
  const ConstParameterArrays& update() const override { return bases_[base_].update; }
  const KeySet& update_keys() const override {
    if (fragments_ != nullptr) return fragments_->update_keys();
    return core_ ? core_->update_keys() : keys_;
  }
  ExchangeKeys* exchange_keys() override { return core_.get(); }
  bool keeps_values() override { return core_ != nullptr || fragments_ != nullptr; }

  absl::StatusOr<Losses> Train(const Dataset& data, absl::Span<const uint32_t> rows,
                               const TrainPoint& point) override;
  absl::StatusOr<Losses> EndSteps() override { return steps_.End(network_.get()); }
  absl::Status FormUpdate() override;
  absl::Status AdoptValues() override;
  absl::Status AdoptEarlierValues() override;
  absl::Status TrainOn() override;
  ValueSink* value_sink() override { return sends_early_ ? &sender_ : nullptr; }
  absl::Status Recut(const SubnetPlace& place) override;
  absl::Status BeginTail() override;
  absl::StatusOr<PrivateState> private_state() override;
  absl::Status AdoptPrivateState() override;
  bool pulls_apart() const override { return true; }
  absl::StatusOr<ExchangeResult> BeginEvaluation(ParameterClient* servers, Exchange after,
                                                 IdleNotice word) override;
  absl::StatusOr<bool> EndEvaluation() override;
  absl::StatusOr<std::vector<float>> Calibrate(const Dataset& data,
                                               absl::Span<const uint32_t> rows) override;
  absl::StatusOr<Scores> Score(const Dataset& data, absl::Span<const uint32_t> rows,
                               absl::Span<const float> constants) override;

 private:
  Replica(const v1::Job& job, const Recipe& recipe, Rank rank, Backend* backend,
          const InputRows& input)
      : job_(job),
        rank_(rank),
        backend_(*backend),
        averages_states_(!recipe.averaged_states.empty()),
        overlaps_(recipe.overlaps),
        receives_apart_(recipe.overlaps || recipe.fragments),
        sides_(DeviceSidesOf(recipe, backend->memory())),
        sends_early_(!backend->memory().host_addressable() && !sides_.values && !receives_apart_),
        rows_(job, input) {}
  // The last local step: the optimizer's, and the delta behind it.
  class LastStep final : public GradientWork {
   public:
    explicit LastStep(Replica* replica) : replica_(*replica) {}
    void Queue(int i) override {
      replica_.optimizer_->Queue(i);
      replica_.FormDelta(i);
    }

   private:
    Replica& replica_;
  };
  class Sender final : public ValueSink {
   public:
    explicit Sender(Replica* replica) : replica_(*replica) {}
    void Take(size_t i) override {
      replica_.SendValue(i);
      replica_.sent_ = i + 1;
    }

   private:
    Replica& replica_;
  };

  // What the delta is formed from that is made next, and then the delta.
  struct Base {
    Buffer<float> values;
    HostView<float> view;  // where it is sent from the host
    ConstParameterArrays update;
  };

  absl::Status AddLocalOptimizer();
  absl::StatusOr<Base> MakeBase();
  absl::Status AddIncoming();
  absl::Status AddKeptStates();
  // Forms the change of parameter i and of its averaged states since the base, in the base's place, and brings it to
  // the host where it is sent from there.
  void FormDelta(int i);
  // shown_ to the device, and one of its arrays.
  void SendValues();
  void SendValue(size_t i);
  // The base is what is exchanged, as it is now.
  void KeepBase();
  // What has come beside training becomes the replica.
  void TakeIncoming();
  // What has come of these entries becomes the base, and the job's share of the replica.
  void TakeUp(absl::Span<const FragmentKeys::Run> runs);
  // Copies arrays of the parameters' sizes, one after the other.
  void CopyArrays(const float* from, const std::vector<float*>& arrays);
  // The optimizer's states, as they are now, and what else is the replica's own.
  void KeepStates();
  void KeepTakenUp();
  // The device's arrays of which KeepStates keeps a copy.
  std::vector<float*> OwnArrays();
  int64_t exchanged_floats() const {
    return static_cast<int64_t>(exchanged_.size()) * network_->plan().parameter_floats;
  }

  const v1::Job job_;
  const Rank rank_;
  Backend& backend_;
  const bool averages_states_;
  const bool overlaps_;
  const bool receives_apart_;  // values come into arrays of their own
  const DeviceSides sides_;
  const bool sends_early_;
  std::unique_ptr<Network> network_;
  std::unique_ptr<GradientClip> clip_;         // where gradients are clipped
  std::unique_ptr<LocalOptimizer> optimizer_;  // where the method steps locally
  uint64_t local_steps_ = 0;
  // Where the method steps locally: the device's arrays that are exchanged, the parameters' and each
  // averaged state's, and what they were at the last pull, one after the other.
  std::vector<float*> exchanged_;
  Base bases_[2];  // two where exchanges overlap; of a gradient one, without values
  int base_ = 0;
  // Where exchanges overlap or are of fragments: values as they come. Where they overlap: the optimizer's states as
  // they were when the last exchange began, and of fragments the parameters behind them.
  Buffer<float> incoming_;
  HostView<float> incoming_view_;
  Buffer<float> kept_states_;
  HostView<float> kept_view_;
  uint64_t kept_local_steps_ = 0;
  bool ahead_ = false;  // of the last exchange
  KeySet keys_;
  // Set: exchanges move a core. What they do not move is this replica's own, and stays.
  std::unique_ptr<ExchangeKeys> core_;
  // Set: exchanges are of fragments. What they do not move is this replica's own, until its turn comes.
  std::unique_ptr<FragmentKeys> fragments_;
  ParameterArrays values_;
  ParameterArrays shown_;  // the same entries in the host's memory
  LastStep last_steps_[2] = {LastStep(this), LastStep(this)};  // by base
  bool formed_ = false;                                        // the last step has formed the delta
  Sender sender_{this};
  size_t sent_ = 0;  // of shown_, so many have been sent as they came
  BatchRows rows_;
  MinibatchSteps steps_{&rows_};
};

}  // namespace tessera

#endif  // TESSERA_WORKER_REPLICA_REPLICA_H_
