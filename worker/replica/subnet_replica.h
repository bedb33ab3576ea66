// A worker's part of a model whose hidden neurons are dealt anew in every round
// (common/keyset/subnet.h): independent subnet training, and the ensemble, whose only round is the
// whole job.
#ifndef TESSERA_WORKER_REPLICA_SUBNET_REPLICA_H_
#define TESSERA_WORKER_REPLICA_SUBNET_REPLICA_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/base/ids.h"
#include "common/keyset/key_set.h"
#include "common/keyset/subnet.h"
#include "common/method/recipe.h"
#include "kernels/backend.h"
#include "kernels/memory.h"
#include "proto/job.pb.h"
#include "worker/data/dataset.h"
#include "worker/exchange/device_sides.h"
#include "worker/exchange/parameter_client.h"
#include "worker/model/local_optimizer.h"
#include "worker/model/network.h"
#include "worker/model/streamed_network.h"
#include "worker/replica/batch_rows.h"
#include "worker/replica/minibatch_steps.h"
#include "worker/replica/subnet_memory.h"
#include "worker/train/learner.h"

namespace tessera {

// Up to three sets of arrays, as SubnetMemory says:
//   the subnet of this round, a small network that is trained, and then sent: update()
//   the subnet of the next round as it is fetched: values(). Where it is apart from the first one, it
//     may come while that one is still being sent, and AdoptValues copies it over
//   the whole network, for evaluation only, or what it takes to read it in blocks
// Without memory apart for the next round an evaluation drops the subnet; EndEvaluation makes room for
// it again.
//
// The small network is made anew only when its sizes change, and the local optimizer's state is zero
// at the begin of every round: it belongs to neurons that are others' in the next one.
//
// Sums that the cut has made smaller in training are multiplied by the mean share in evaluation
// (common/keyset/mean_share.h), which is that of the last round trained.
//
// It has more fields than other classes, as it holds this round's network, the next round's, and what evaluates.
//
// One thread, the train loop's.
class SubnetReplica final : public Learner {
 public:
  // values() are those of round `first`, in a cut among the job's workers with a site each, by rank.
  // Where it is cut otherwise, Recut says so. `backend` outlives the replica.
  //   kInvalidArgument     `rank` has no neuron of some layer
  //   kResourceExhausted   no memory
  //   kFailedPrecondition  the job's precision is not to be had on this machine
  static absl::StatusOr<std::unique_ptr<SubnetReplica>> Create(const v1::Job& job,
                                                               const Recipe& recipe, Rank rank,
                                                               Exchange first, Backend* backend,
                                                               const InputRows& input = {},
                                                               const SubnetMemory& memory = {});

  const ParameterArrays& values() const override { return values_; }
  const KeySet& value_keys() const override { return value_keys_; }
  const ConstParameterArrays& update() const override { return update_; }
  const KeySet& update_keys() const override { return update_keys_; }

  absl::StatusOr<Losses> Train(const Dataset& data, absl::Span<const uint32_t> rows,
                               const TrainPoint& point) override;
  absl::StatusOr<Losses> EndSteps() override { return steps_.End(network_.get()); }
  absl::Status FormUpdate() override;
  absl::Status AdoptValues() override;
  // While the next round's subnet has this one's sizes: what is trained has gone by then.
  ValueSink* value_sink() override { return sends_early() && FitsNext() ? &sender_ : nullptr; }
  absl::Status Recut(const SubnetPlace& place) override;
  absl::Status BeginTail() override;

  absl::StatusOr<PrivateState> private_state() override {
    PrivateState state;
    state.sites = &sites_;
    return state;
  }
  bool pulls_apart() const override { return memory_.pulls_apart; }
  absl::StatusOr<ExchangeResult> BeginEvaluation(ParameterClient* servers, Exchange after,
                                                 IdleNotice word) override;
  absl::StatusOr<bool> EndEvaluation() override;
  absl::StatusOr<std::vector<float>> Calibrate(const Dataset& data,
                                               absl::Span<const uint32_t> rows) override;
  absl::StatusOr<Scores> Score(const Dataset& data, absl::Span<const uint32_t> rows,
                               absl::Span<const float> constants) override;

 private:
  // The last local step: what it has trained comes as soon as it has.
  class LastStep final : public GradientWork {
   public:
    explicit LastStep(SubnetReplica* replica) : replica_(*replica) {}
    void Queue(int i) override {
      replica_.optimizer_->Queue(i);
      if (!replica_.sides_.update) replica_.network_->arrays().FetchParameter(i);
    }

   private:
    SubnetReplica& replica_;
  };

  class Sender final : public ValueSink {
   public:
    explicit Sender(SubnetReplica* replica) : replica_(*replica) {}
    void Take(size_t i) override {
      replica_.SendValue(i);
      replica_.sent_ = i + 1;
    }

   private:
    SubnetReplica& replica_;
  };

  SubnetReplica(const v1::Job& job, const Recipe& recipe, Rank rank, Backend* backend,
                const InputRows& input, const SubnetMemory& memory);
  bool sends_early() const {
    return memory_.pulls_apart && !sides_.values && !backend_.memory().host_addressable();
  }
  // The network has the sizes of the next round's.
  bool FitsNext() const;
  // values()[i] to where the network has it.
  void SendValue(size_t i);
  absl::Status MakeWhole();
  // The next round's keys and arrays.
  absl::Status Expect(const SubnetPlace& place);
  absl::Status MakePulled();
  absl::Status MakeNetwork();
  void DropNetwork();

  const v1::Job job_;
  const Rank rank_;
  Backend& backend_;
  const InputRows input_;
  const SubnetMemory memory_;
  const bool steps_columns_;
  const DeviceSides sides_;
  ModelShape shape_;
  NeuronGroups groups_;
  BatchRows rows_;
  MinibatchSteps steps_{&rows_};

  // What belongs to the next round.
  KeySet value_keys_;
  v1::Model next_model_;
  NetworkPlan next_plan_;
  Buffer<float>
      pulled_;  // where it is apart, on the side of its values: as NetworkArrays::parameters()
                // of next_plan_, or longer
  ParameterArrays values_;
  Sender sender_{this};
  size_t sent_ = 0;  // of values_, so many have gone to the network as they came

  // This round. Where values are pulled apart, no network before the first have come.
  KeySet update_keys_;
  std::unique_ptr<Network> network_;
  std::unique_ptr<GradientClip> clip_;  // where gradients are clipped
  std::unique_ptr<LocalOptimizer> optimizer_;
  uint64_t local_steps_ = 0;
  ConstParameterArrays update_;
  bool trains_ = false;  // values were adopted since the last update
  LastStep last_step_{this};
  bool fetched_ = false;  // the last step has fetched what it has trained

  // What evaluates: one of these two.
  std::unique_ptr<Network> whole_;
  ParameterArrays evaluation_values_;
  std::unique_ptr<StreamedNetwork> streamed_;  // between BeginEvaluation and EndEvaluation
  std::vector<int> weights_of_mean_share_;
  uint32_t sites_ = 1;  // of the last round trained, or of the next if there was none
};

}  // namespace tessera

#endif  // TESSERA_WORKER_REPLICA_SUBNET_REPLICA_H_
