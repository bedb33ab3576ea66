// The checkpoint that a job ends with: whose word it waits for, and how often it is tried.
//
// It is begun once members have finished, and tried again where it fails, as all members wait for it and nobody would
// write another: kTries times in all, each kPause after the failure before, unless some member writes but once.
#ifndef TESSERA_SERVER_CONTROL_LAST_CHECKPOINT_H_
#define TESSERA_SERVER_CONTROL_LAST_CHECKPOINT_H_

#include <optional>
#include <set>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/base/ids.h"
#include "proto/coordinator_state.pb.h"

namespace tessera {

// Time comes in as an argument; Checkpoints, which owns it, makes the checkpoint.
class LastCheckpoint {
 public:
  // Long enough for somebody who makes room on a disk; everybody waits meanwhile.
  static constexpr int kTries = 3;
  static constexpr absl::Duration kPause = absl::Seconds(5);

  // The member has made its last step, and writes no more but to this checkpoint. True: that was not known.
  bool OnFinished(MemberId member, bool writes_again);
  bool HasFinished(MemberId member) const { return finished_.count(member) > 0; }
  // The job goes back to an earlier one: nobody has finished.
  void GoBack() { finished_.clear(); }

  void Begin() { begun_ = true; }
  bool begun() const { return begun_; }
  // A try has failed. Returns what comes next, in words.
  std::string OnFailed(absl::Time now);
  // Whether another try is due at `now`. False, too, where nobody is left to write it again: then it is over.
  bool TakeTry(absl::Time now);
  // When the next try is due, if one has failed.
  const std::optional<absl::Time>& try_at() const { return try_at_; }
  // It is whole.
  void SetOver() { over_ = true; }
  // It is whole, or has failed for good.
  bool over() const { return over_; }

  void Save(v1::CheckpointsState* state) const;
  //   kInvalidArgument  more tries than there are, or one to come of none that failed
  absl::Status Load(const v1::CheckpointsState& state, bool is_idle);

 private:
  std::set<MemberId> finished_;
  bool begun_ = false;
  bool over_ = false;
  bool writes_once_ = false;  // some member that has finished
  int failures_ = 0;
  std::optional<absl::Time> try_at_;
};

}  // namespace tessera

#endif  // TESSERA_SERVER_CONTROL_LAST_CHECKPOINT_H_
