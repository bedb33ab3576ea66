// How a checkpoint of a running job comes into being, as the coordinator sees it.
//
//   begin    the folder for the files is made (DiskTask::kBegin)
//   agree    members in lockstep: all servers promise an exchange, as for a joiner (agreement.h), long
//            before it comes, so that nobody waits. Elsewhere nothing need be agreed on: what a checkpoint
//            has of each server is what a pull at that moment would have got.
//   write    servers copy what they have after that exchange, and go on; members learn from their next
//            pull that they have a file to write, too
//   commit   all files are on the disk: the manifest is written, and the folder gets its name
//            (DiskTask::kCommit)
//
// One at a time. What goes wrong on the way ends that one; the next is begun when it is due. After the last
// one none is: it is tried several times (last_checkpoint.h). Where the job goes back during a commit, that is undone
// (DiskTask::kAbandon).
#ifndef TESSERA_SERVER_CONTROL_CHECKPOINTS_H_
#define TESSERA_SERVER_CONTROL_CHECKPOINTS_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/base/ids.h"
#include "common/checkpoint/manifest.h"
#include "proto/coordinator.pb.h"
#include "proto/coordinator_state.pb.h"
#include "proto/status.pb.h"
#include "server/control/checkpoint_files.h"
#include "server/control/checkpoint_record.h"
#include "server/control/exchange_steps.h"
#include "server/control/job_facts.h"
#include "server/control/last_checkpoint.h"
#include "server/control/members/member_table.h"
#include "server/control/saved_job.h"
#include "server/control/saved_states.h"

namespace tessera {

// Something that the coordinator wants done with checkpoint.directory (checkpoint_directory.h).
struct DiskTask {
  // kPrune: of those before this one as many are removed as are not to be kept. It comes once it is known, whoever
  // is the coordinator, that the job would not go back to one of them.
  enum class Kind { kBegin, kCommit, kAbandon, kPrune };
  Kind kind = Kind::kBegin;
  uint64_t number = 0;
  uint64_t folder_step = 0;
  // kCommit, and kAbandon after a failed commit: the manifest to write or discard. kPrune: only `step` is set.
  Manifest manifest;
  // Where each server is reached, by rank; an empty one is not there. The coordinator fills it in.
  std::vector<std::string> servers = {};

  // What becomes of it is said to OnDisk.
  bool is_awaited() const { return kind == Kind::kBegin || kind == Kind::kCommit; }
};

// Pure: events and the time come in; what the disk has to do comes out of TakeTasks.
//
// It has more public methods than other classes: members, servers and the disk each have their events for it, and what
// it says of the open checkpoint is asked for by each of them.
class Checkpoints {
 public:
  // `facts` outlives it.
  explicit Checkpoints(const JobFacts& facts)
      : facts_(facts), steps_(facts.local_steps, nullptr), files_(facts) {}

  enum class Stage {
    kIdle,
    kBeginning,   // the folder is being made
    kAgreeing,    // the exchange is not known yet
    kWriting,     // ordered
    kCommitting,  // all files are there
  };
  Stage stage() const { return stage_; }

  // One is wanted as soon as may be. Returns its number.
  uint64_t Ask();
  // Training is over for `member`, which has written what it was asked to: a last one, of where everybody
  // stands, which is `step`; none where there is one of that step. Whether it can begin now; if not, ask
  // again. One that fails is tried again unless somebody writes but once.
  bool BeginLast(const MemberRecord& member, uint64_t step, bool writes_again, absl::Time now);
  // Begins the last one again where it has failed and its pause is over.
  void DriveLast(absl::Time now);

  // Begins one where it is time for it. `highest`: the furthest exchange and step known.
  void Drive(Exchange highest_exchange, uint64_t highest_step, absl::Time now);
  // Which steps exchanges end at, whenever that may have changed.
  void SetSteps(const ExchangeSteps& steps) { steps_ = steps; }
  // While agreeing: the exchange that all are to promise is at least this one. None of it is folded before
  // the order has come, so that nobody can read what it brings without being told.
  Exchange first_promised() const { return after_; }
  // All have promised `first`, and what it brings is taken. 0, without lockstep: now. Returns what to tell the servers.
  v1::CheckpointOrder OnAgreed(Exchange first);
  bool needs_agreement() const { return facts_.synchronous && !last_of_all_.begun(); }

  // `may_prune`: nobody has yet to read its file of an earlier one.
  void OnDisk(const DiskTask& task, const absl::Status& status, bool may_prune, absl::Time now);
  void OnPart(ShardId server, const v1::CheckpointPart& part, absl::Time now);
  void OnSaved(const MemberRecord& member, const v1::SavedRequest& request, absl::Time now);
  // All parts and files are there: commits, with what only the coordinator knows.
  bool IsComplete(const MemberTable& members) const;
  // Who has yet to do something for the open one ("server 1 to write its part of checkpoint 5").
  std::vector<std::string> Missing(const MemberTable& members) const;
  void Commit(SavedJob job, Generation generation, absl::Time now);
  // What servers and workers have written of it so far.
  const CheckpointFiles& files() const { return files_; }
  // The step that the files are of, as far as some worker told.
  uint64_t saved_step() const { return files_.has_workers() ? files_.step() : folder_step_; }
  // Members that advance on their own are at different steps: the least of theirs.
  uint64_t saved_step_least() const {
    return files_.has_workers() ? files_.step_least() : folder_step_;
  }

  // Gives the open one up; the last one may be tried again.
  void Fail(absl::string_view why, absl::Time now);
  // The job goes back to `step`: gives the open one up, and counts from there. It is not the last one, after which
  // no job goes back.
  void GoBack(uint64_t step, absl::Time now);

  // The order that servers must have heard of; nullopt: none.
  const std::optional<v1::CheckpointOrder>& order() const { return order_; }
  v1::CheckpointMark mark() const;
  uint64_t number() const { return number_; }
  // The number of the last one that servers may have been told of: whoever is admitted now has no part in it.
  uint64_t last_ordered() const {
    const bool is_ahead = stage_ == Stage::kBeginning || stage_ == Stage::kAgreeing;
    return is_ahead ? number_ - 1 : number_;
  }
  const CheckpointRecord& record() const { return record_; }
  // The last whole one; nullptr: none.
  const std::shared_ptr<const SavedState>& last() const { return last_; }
  void SetLast(std::shared_ptr<const SavedState> last);
  // The one that the job ends with.
  const LastCheckpoint& last_of_all() const { return last_of_all_; }

  std::vector<DiskTask> TakeTasks();
  void Fill(absl::Time now, v1::CheckpointStatus* status) const;

  // Grows with every step of the above, and with every file that is there.
  uint64_t changes() const { return changes_; }
  v1::CheckpointsState Save(SavedStates* saved) const;
  //   kInvalidArgument  a stage or a checkpoint that there is none of
  absl::Status Load(const v1::CheckpointsState& state, const SavedStates& saved);
  // What was wanted of the disk may or may not have been done. A commit is wanted again, as the checkpoint
  // may be whole; one that has not come so far is given up.
  void Reconnect(absl::Time now);

 private:
  void Begin(uint64_t step, Exchange after, absl::Time now);
  bool IsAwaited(const MemberRecord& member) const;
  Manifest MakeManifest(const SavedJob& job, Generation generation) const;

  const JobFacts& facts_;
  ExchangeSteps steps_;  // as last told
  Stage stage_ = Stage::kIdle;
  uint64_t number_ = 0;
  uint64_t folder_step_ = 0;
  Exchange after_;
  LastCheckpoint last_of_all_;
  bool asked_ = false;
  std::optional<v1::CheckpointOrder> order_;
  CheckpointFiles files_;  // of the open one
  // Checkpoints are due after these.
  uint64_t done_step_ = 0;
  // The step that had been reached when the open checkpoint was begun, where members advance on their own.
  uint64_t planned_step_ = 0;
  std::shared_ptr<const SavedState> open_state_;  // being committed
  std::shared_ptr<const SavedState> last_;
  std::vector<DiskTask> tasks_;
  CheckpointRecord record_;
  uint64_t changes_ = 0;
};

}  // namespace tessera

#endif  // TESSERA_SERVER_CONTROL_CHECKPOINTS_H_
