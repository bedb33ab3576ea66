// When the training of a job is over, and whether that is a good end: all steps were made, a target was reached, all
// workers have left; nobody is left, or nobody trains one half of the layers; or it is asked to end early (drain).
#ifndef TESSERA_SERVER_CONTROL_TRAINING_END_H_
#define TESSERA_SERVER_CONTROL_TRAINING_END_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "proto/coordinator_state.pb.h"
#include "server/control/epochs.h"
#include "server/control/evaluation.h"
#include "server/control/job_end.h"
#include "server/control/job_facts.h"
#include "server/control/members/membership.h"

namespace tessera {

class TrainingEnd {
 public:
  // All outlive it.
  TrainingEnd(const JobFacts& facts, const Epochs& epochs, const Evaluation& evaluation,
              Membership* membership, JobEnd* end)
      : facts_(facts),
        epochs_(epochs),
        evaluation_(evaluation),
        membership_(*membership),
        end_(*end) {}

  // The job is to end early, with an evaluation. One that has not started is to fail at once, for the reason that is
  // returned; one that goes back to a checkpoint (`has_gone_back`) begins again first, if it can within some leases.
  std::optional<std::string> Drain(absl::string_view reason, bool has_gone_back, absl::Time now);
  // The job goes back, and is drained as soon as it has begun again.
  bool awaits_drain() const { return drain_since_ != absl::InfiniteFuture(); }
  // What a drain that came while the job went back has led to: why the job is to fail, if it is. `restore_step`: the
  // step of its last checkpoint.
  std::optional<std::string> FollowDrain(const std::vector<std::string>& missing,
                                         uint64_t restore_step, absl::Time now);

  // After the last evaluation: ends the members that had no part in it. They cannot go on alone.
  void RemoveLate();
  // How the job ends; nullopt: it goes on. OK: it has finished, or all have left. kAborted: it cannot go on, and why.
  std::optional<absl::Status> Decide(absl::Time now);
  // Whoever is at this step and epoch has made all steps of the job.
  bool HasTrained(uint64_t step, uint64_t epoch) const;

  // All leases begin anew: so do the times that are waited here.
  void ExtendLeases(absl::Time now);
  void Reconnect(absl::Time now);
  uint64_t changes() const { return changes_; }
  void Save(v1::CoordinatorState* state) const;
  void Load(const v1::CoordinatorState& state);

 private:
  bool HasTrained(const MemberRecord& member) const;
  bool HasReachedTarget() const;
  // Where workers train different layers: why the job cannot go on without those who are gone; nullopt: it can, or may
  // be about to end.
  std::optional<std::string> LacksHalf(absl::Time now);
  // Nobody takes part any more.
  std::optional<absl::Status> DecideWithoutMembers();

  const JobFacts& facts_;
  const Epochs& epochs_;
  const Evaluation& evaluation_;
  Membership& membership_;
  JobEnd& end_;
  absl::Time drain_since_ = absl::InfiniteFuture();
  // Since when half of the layers is nobody's; InfiniteFuture: it is not. It is not saved: whoever goes on in this
  // one's place gives the others as long again.
  absl::Time half_missing_since_ = absl::InfiniteFuture();
  uint64_t changes_ = 0;
};

}  // namespace tessera

#endif  // TESSERA_SERVER_CONTROL_TRAINING_END_H_
