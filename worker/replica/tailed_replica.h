// What a worker trains in a job of subnets that ends on the whole model.
#ifndef TESSERA_WORKER_REPLICA_TAILED_REPLICA_H_
#define TESSERA_WORKER_REPLICA_TAILED_REPLICA_H_

#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/base/ids.h"
#include "common/method/recipe.h"
#include "kernels/backend.h"
#include "proto/job.pb.h"
#include "worker/replica/batch_rows.h"
#include "worker/replica/replica.h"
#include "worker/replica/subnet_memory.h"
#include "worker/replica/subnet_replica.h"
#include "worker/train/learner.h"

namespace tessera {

// A SubnetReplica, and from BeginTail on a Replica of the recipe's tail (TailOf): its local optimizer
// begins then, with states of zero. In between the last subnet goes up and the whole model comes down,
// so that for one exchange both are there.
//
// One thread, the train loop's.
class TailedReplica final : public Learner {
 public:
  // Codes as SubnetReplica::Create, whose memory is `memory`. At the switch Replica::MemoryNeeded comes
  // on top of it.
  static absl::StatusOr<std::unique_ptr<TailedReplica>> Create(const v1::Job& job,
                                                               const Recipe& recipe, Rank rank,
                                                               Exchange first, Backend* backend,
                                                               const InputRows& input = {},
                                                               const SubnetMemory& memory = {});

  const ParameterArrays& values() const override { return next().values(); }
  const KeySet& value_keys() const override { return next().value_keys(); }
  const ConstParameterArrays& update() const override { return now().update(); }
  const KeySet& update_keys() const override { return now().update_keys(); }

  absl::StatusOr<Losses> Train(const Dataset& data, absl::Span<const uint32_t> rows,
                               const TrainPoint& point) override {
    return now().Train(data, rows, point);
  }
  absl::StatusOr<Losses> EndSteps() override { return now().EndSteps(); }
  absl::Status FormUpdate() override { return now().FormUpdate(); }
  absl::Status AdoptValues() override;
  ValueSink* value_sink() override { return next().value_sink(); }
  absl::Status Recut(const SubnetPlace& place) override { return next().Recut(place); }
  // kResourceExhausted: no memory
  absl::Status BeginTail() override;

  absl::StatusOr<PrivateState> private_state() override { return now().private_state(); }
  absl::Status AdoptPrivateState() override { return now().AdoptPrivateState(); }
  bool pulls_apart() const override { return next().pulls_apart(); }
  absl::StatusOr<ExchangeResult> BeginEvaluation(ParameterClient* servers, Exchange after,
                                                 IdleNotice word) override {
    return now().BeginEvaluation(servers, after, word);
  }
  absl::StatusOr<bool> EndEvaluation() override { return now().EndEvaluation(); }
  absl::StatusOr<std::vector<float>> Calibrate(const Dataset& data,
                                               absl::Span<const uint32_t> rows) override {
    return now().Calibrate(data, rows);
  }
  absl::StatusOr<Scores> Score(const Dataset& data, absl::Span<const uint32_t> rows,
                               absl::Span<const float> constants) override {
    return now().Score(data, rows, constants);
  }

 private:
  TailedReplica(const v1::Job& job, const Recipe& recipe, Rank rank, Backend* backend,
                const InputRows& input)
      : job_(job), tail_(TailOf(recipe)), rank_(rank), backend_(*backend), input_(input) {}
  // What is trained, and what is pulled next.
  Learner& now() const {
    return subnets_ != nullptr ? static_cast<Learner&>(*subnets_) : static_cast<Learner&>(*whole_);
  }
  Learner& next() const {
    return whole_ != nullptr ? static_cast<Learner&>(*whole_) : static_cast<Learner&>(*subnets_);
  }

  const v1::Job job_;
  const Recipe tail_;
  const Rank rank_;
  Backend& backend_;
  const InputRows input_;
  std::unique_ptr<SubnetReplica> subnets_;  // until the first values of the whole model are adopted
  std::unique_ptr<Replica> whole_;          // from BeginTail on
};

}  // namespace tessera

#endif  // TESSERA_WORKER_REPLICA_TAILED_REPLICA_H_
