// Finds out what has happened in a job: it compares the job's state with what that was when it looked last.
//
// Whoever changes the state need not know of events, and no event is told that did not come to pass. What it has seen
// follows from the state alone, so that whoever goes on from a saved state has seen the same.
#ifndef TESSERA_SERVER_CONTROL_EVENT_WATCH_H_
#define TESSERA_SERVER_CONTROL_EVENT_WATCH_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/base/ids.h"
#include "server/control/checkpoint_driver.h"
#include "server/control/checkpoints.h"
#include "server/control/evaluation.h"
#include "server/control/event_log.h"
#include "server/control/job_end.h"
#include "server/control/job_facts.h"
#include "server/control/members/membership.h"

namespace tessera {

// Looks at the state of the job and changes none of it.
class EventWatch {
 public:
  // What it looks at. All outlive it.
  struct Tables {
    const JobFacts& facts;
    const Membership& membership;
    const Evaluation& evaluation;
    const Checkpoints& checkpoints;
    const CheckpointDriver& checkpoint_driver;
    const JobEnd& end;
  };
  explicit EventWatch(const Tables& tables) : on_(tables) { Adopt(); }

  // Adds to `log` what has happened since the last look, at `seconds` of the job (JobEvent.seconds).
  void Look(double seconds, EventLog* log);
  // Takes all that is there for seen.
  void Adopt();

 private:
  // What matters of a server's or a host's record.
  struct Server {
    bool attached = false;
    bool gone = false;
    bool left = false;
    uint64_t life = 0;
    std::string address;
  };
  struct Seen {
    std::map<MemberId, MemberState> members;
    uint64_t members_changes = 0;                  // Membership::changes() when they were looked at
    std::vector<Server> servers;                   // by rank
    std::vector<std::optional<uint32_t>> leaders;  // of shards that have standbys
    uint64_t whole_checkpoint = 0;
    uint64_t failed_checkpoint = 0;
    uint64_t rollbacks = 0;
    size_t evaluations = 0;
    int refused_digits = 0;  // binary ones of the number of refused pushes
    bool has_begun = false;
    bool is_draining = false;
    bool has_ended = false;
  };
  // Adds events of `seconds` to a log.
  class Teller;

  std::vector<Server> Servers() const;
  std::vector<std::optional<uint32_t>> Leaders() const;
  uint64_t RefusedPushes() const;
  void LookAtMembers(const Teller& tell);
  void LookAtServers(const Teller& tell);
  void LookAtLeaders(const Teller& tell);
  void LookAtCheckpoints(const Teller& tell);
  void LookAtEvaluations(const Teller& tell);
  void LookAtJob(const Teller& tell);

  const Tables on_;
  Seen seen_;
};

}  // namespace tessera

#endif  // TESSERA_SERVER_CONTROL_EVENT_WATCH_H_
