// The steps that the worker of rank 0 makes alone before the others of a replicated job begin (Recipe's warm-up).
//
//   alone    nobody else is admitted
//   waiting  that worker stands at the end of its warm-up until the others have begun, so that none of them misses what
//            comes after it
#ifndef TESSERA_SERVER_CONTROL_MEMBERS_WARM_UP_H_
#define TESSERA_SERVER_CONTROL_MEMBERS_WARM_UP_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/base/ids.h"
#include "server/control/members/job_drain.h"
#include "server/control/job_facts.h"
#include "server/control/members/job_stage.h"
#include "server/control/members/member_table.h"
#include "server/control/members/server_table.h"

namespace tessera {

// Without effect in a job that has no warm-up.
class WarmUp {
 public:
  // All outlive it.
  WarmUp(const JobFacts& facts, const ServerTable& servers, const JobStage& stage,
         const JobDrain& drain, MemberTable* members)
      : facts_(facts), servers_(servers), stage_(stage), drain_(drain), members_(*members) {}

  // A member is in the plan, and none has made the steps of the warm-up.
  bool IsOn() const;
  // The member begins to train at `step`, and says so before its first renewal, which may be a while.
  void OnBegins(MemberId member, uint64_t step);
  // The member stands at the end of its warm-up. For whom it has to wait there ("worker 1").
  std::vector<std::string> End(MemberId member);
  // For whom a member waits that stands there, as it said last; nullopt: none stands there.
  std::optional<std::vector<std::string>> WaitingFor() const;

 private:
  // All live members but this one that have yet to begin, so that who dies meanwhile is waited for no longer than its
  // lease. None of those whom nobody can admit yet.
  std::vector<std::string> YetToBegin(MemberId but) const;

  const JobFacts& facts_;
  const ServerTable& servers_;
  const JobStage& stage_;
  const JobDrain& drain_;
  MemberTable& members_;
};

}  // namespace tessera

#endif  // TESSERA_SERVER_CONTROL_MEMBERS_WARM_UP_H_
