// Servers that are asked to end while the job goes on: SIGTERM to one of them, as for a planned restart.
//
//   standbys     others follow what it followed; its standbys lead once they have all (shard_owners.h). Nothing is done
//                again
//   checkpoints  one is made, and in lockstep nothing is folded after it; then the server may end, and the job waits
//                for it to be started again and goes back to that checkpoint
//   replicas     it and the worker beside it are removed; the others go on
//   otherwise    the job is drained
//
// They leave one at a time, in the order in which they asked: who was restarted may take over from the next.
#ifndef TESSERA_SERVER_CONTROL_SERVER_DEPARTURES_H_
#define TESSERA_SERVER_CONTROL_SERVER_DEPARTURES_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "proto/coordinator.pb.h"
#include "proto/coordinator_state.pb.h"
#include "server/control/checkpoint_driver.h"
#include "server/control/checkpoints.h"
#include "server/control/epochs.h"
#include "server/control/evaluation.h"
#include "server/control/job_end.h"
#include "server/control/job_facts.h"
#include "server/control/members/membership.h"
#include "server/control/training_end.h"

namespace tessera {

class ServerDepartures {
 public:
  // What it decides from, and moves. All outlive it.
  struct Tables {
    const JobFacts& facts;
    const Epochs& epochs;
    const Evaluation& evaluation;
    const TrainingEnd& training_end;
    Membership& membership;
    Checkpoints& checkpoints;
    CheckpointDriver& driver;
    JobEnd& end;
  };
  explicit ServerDepartures(const Tables& tables) : on_(tables) {}

  // The server, or host, of this rank was asked to end. It may say so again.
  void OnAsked(uint32_t rank, absl::Time now);
  // Lets go whoever may end by now, tells the first of the others what it waits for, and those behind it for whom.
  void Drive(absl::Time now);
  // The checkpoint that the first of them waits for; 0: none.
  uint64_t awaited_checkpoint() const { return leavers_.empty() ? 0 : leavers_.front().checkpoint; }

  // Another process goes on in this one's place, after a pause that counts for nobody.
  void Reconnect(absl::Time now);
  uint64_t changes() const { return changes_; }
  void Save(v1::CoordinatorState* state) const;
  void Load(const v1::CoordinatorState& state);

 private:
  struct Leaver {
    uint32_t rank = 0;
    uint64_t life = 0;
    absl::Time since;
    uint64_t checkpoint = 0;  // that it waits for; 0: none
  };

  // What becomes of the first of them.
  v1::LeaveAnswer Consider(Leaver* leaver, absl::Time now);
  v1::LeaveAnswer AwaitCheckpoint(Leaver* leaver, absl::Time now);
  v1::LeaveAnswer DrainInstead(const Leaver& leaver, absl::string_view why);
  v1::LeaveAnswer LetGo(const Leaver& leaver, absl::string_view lost, absl::Time now);
  void Tell(const Leaver& leaver, const v1::LeaveAnswer& answer);
  // The life of the process that has this rank now; 0: there is none.
  uint64_t LifeOf(uint32_t rank) const;

  const Tables on_;
  std::vector<Leaver> leavers_;  // in the order in which they asked
  // The last answer to each, serialized. It is not saved: whoever goes on says it again.
  std::map<uint32_t, std::string> told_;
  uint64_t changes_ = 0;
};

}  // namespace tessera

#endif  // TESSERA_SERVER_CONTROL_SERVER_DEPARTURES_H_
