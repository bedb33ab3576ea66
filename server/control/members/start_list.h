// Whom a job waits for before its first plan.
//
//   at first       the ranks that it asks for, for as long as it takes
//   when it goes   those that were members. Each learns of it with its next renewal, and may be in the middle of a
//   back           minibatch: once the servers have read the checkpoint there is a limited time for them to come,
//                  and whoever is here then begins
#ifndef TESSERA_SERVER_CONTROL_MEMBERS_START_LIST_H_
#define TESSERA_SERVER_CONTROL_MEMBERS_START_LIST_H_

#include <optional>
#include <set>
#include <utility>

#include "absl/time/time.h"
#include "common/base/ids.h"
#include "proto/coordinator_state.pb.h"
#include "server/control/job_facts.h"
#include "server/control/members/member_table.h"

namespace tessera {

// How long members of a job that goes back have, in leases.
constexpr int kRejoinLeases = 3;

class StartList {
 public:
  explicit StartList(const JobFacts& facts) : facts_(facts) {}

  // The job goes back. `members` are the ranks that it had; nullopt: it had not begun again since it last did, and
  // waits for the same ones. If they are none it is as at first.
  void GoBack(std::optional<std::set<Rank>> members);
  // The servers have all that the job begins from, perhaps since earlier. True: it is to begin without the others.
  bool IsTimeUp(absl::Time now);

  bool goes_back() const { return !rejoining_.empty(); }
  // It was a member when the job went back.
  bool WasMember(Rank rank) const { return rejoining_.count(rank) > 0; }
  std::set<Rank> Awaited() const;
  // All who are waited for are here, or their time is up and somebody is.
  bool IsComplete(const MemberTable& members) const;

  // The job begins again: whoever was a member when it went back and has not come is lost.
  void MarkMissed(MemberTable* members) const;

  void Save(v1::MembershipState* state) const;
  void Load(const v1::MembershipState& state);

 private:
  const JobFacts& facts_;
  std::set<Rank> rejoining_;  // empty: as at first
  absl::Time until_ =
      absl::InfiniteFuture();  // InfinitePast: it was, and is not waited for any more
};

}  // namespace tessera

#endif  // TESSERA_SERVER_CONTROL_MEMBERS_START_LIST_H_
