// Keeps what a learner trains up with the servers' values: of the cut, of the core and of the round that counts.
#ifndef TESSERA_WORKER_TRAIN_LEARNER_VALUES_H_
#define TESSERA_WORKER_TRAIN_LEARNER_VALUES_H_

#include <algorithm>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/ids.h"
#include "worker/exchange/parameter_client.h"
#include "worker/train/learner.h"
#include "worker/train/loop_progress.h"

namespace tessera {

// One thread, the train loop's.
class LearnerValues {
 public:
  // `has_tail`: the job ends on the whole model after rounds of subnets. All outlive it.
  LearnerValues(bool has_tail, Learner* learner, ParameterClient* servers, LoopProgress* progress)
      : has_tail_(has_tail), learner_(*learner), servers_(*servers), progress_(*progress) {}

  // Pulls the values that follow exchange `after`, and adopts them.
  absl::StatusOr<ExchangeResult> Fetch(Exchange after);
  // Pulls again for as long as `pulled` says that the round is cut otherwise, or that a core is not known.
  absl::StatusOr<ExchangeResult> FollowCut(Exchange after, ExchangeResult pulled);
  // The learner's values have just been replaced by the servers'.
  absl::Status Adopt();

  // A core's keys come while the next minibatches are computed: asks for those that the next exchange wants, if it
  // wants any and they were not asked for.
  void AskCores();
  // Waits for them.
  absl::Status TakeCores();
  // What the servers' answer says of cores.
  void Tell(const ExchangeResult& pulled);

  // Rows that the newest values were computed from, over the whole job.
  uint64_t job_examples() const { return job_examples_; }
  void NoteExamples(uint64_t job_examples) {
    job_examples_ = std::max(job_examples_, job_examples);
  }
  // The newest plan that exchanges have brought.
  Generation plan() const { return plan_; }
  void NotePlan(Generation plan) { plan_ = std::max(plan_, plan); }
  // Where values are pulled apart from the push: those that follow the last exchange are still to be fetched.
  bool is_fetch_due() const { return fetch_due_; }
  void SetFetchDue() { fetch_due_ = true; }

 private:
  const bool has_tail_;
  Learner& learner_;
  ParameterClient& servers_;
  LoopProgress& progress_;
  uint64_t job_examples_ = 0;
  Generation plan_;
  bool cores_due_ = false;  // asked for
  bool fetch_due_ = false;
};

}  // namespace tessera

#endif  // TESSERA_WORKER_TRAIN_LEARNER_VALUES_H_
