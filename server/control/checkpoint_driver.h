// The job's part in its checkpoints: when one is due, agreed on and whole by what members, servers, the evaluation and
// the clock say; what the coordinator adds to its manifest; and what of that a job which goes back takes up again.
#ifndef TESSERA_SERVER_CONTROL_CHECKPOINT_DRIVER_H_
#define TESSERA_SERVER_CONTROL_CHECKPOINT_DRIVER_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/checkpoint/manifest.h"
#include "proto/coordinator.pb.h"
#include "proto/status.pb.h"
#include "server/control/checkpoints.h"
#include "server/control/epochs.h"
#include "server/control/evaluation.h"
#include "server/control/job_clock.h"
#include "server/control/job_facts.h"
#include "server/control/members/membership.h"
#include "server/control/saved_job.h"

namespace tessera {

class CheckpointDriver {
 public:
  // What it reads and moves. All outlive it.
  struct Tables {
    const JobFacts& facts;
    const JobClock& clock;
    Membership& membership;
    Epochs& epochs;
    Evaluation& evaluation;
    Checkpoints& checkpoints;
  };
  explicit CheckpointDriver(const Tables& tables) : on_(tables) {}

  // Takes the open checkpoint as far as it can go now, or begins one that is due. `awaited`: a server waits for the
  // checkpoint of this number, or a later one, to end with it; 0: none does.
  void Drive(uint64_t awaited, absl::Time now);
  // What became of a task that the disk was given.
  void OnDisk(const DiskTask& task, const absl::Status& status, absl::Time now);
  // A worker that has finished asks for the last checkpoint of all. False: it cannot begin yet.
  bool BeginLast(const MemberRecord& member, bool writes_again, absl::Time now);
  // Does what follows from lost leaders of shards: what one had to write its successor does not know of.
  void FollowLosses(absl::Time now);

  // The job goes back to the last checkpoint; what it takes up again is set.
  void GoBack(absl::string_view why, absl::Time now);
  // Epochs, evaluations and history are those of the last checkpoint.
  void TakeUp();
  // The job has gone back so often.
  uint64_t rollbacks() const { return rollbacks_; }

  void Fill(absl::Time now, bool is_running, v1::JobStatus* status) const;

  uint64_t changes() const { return changes_; }
  void Save(v1::CoordinatorState* state) const { state->set_rollbacks(rollbacks_); }
  void Load(const v1::CoordinatorState& state) { rollbacks_ = state.rollbacks(); }

 private:
  // All servers have promised, or need not promise, where the open checkpoint is made.
  void Order(uint64_t awaited);
  SavedJob MakeSavedJob(absl::Time now) const;
  // Evaluations that are due at ends of epochs and had been held when the checkpoint was made.
  uint64_t EvaluationsHeld(const Manifest& manifest, bool one_is_due) const;

  const Tables on_;
  uint64_t rollbacks_ = 0;
  uint64_t changes_ = 0;
};

}  // namespace tessera

#endif  // TESSERA_SERVER_CONTROL_CHECKPOINT_DRIVER_H_
