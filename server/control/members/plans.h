// The plans that servers count by: who is a member, from which exchange on, and with which part of the model.
//
// Every plan has a generation of its own, one more than the last. Where members train subnets, those that are gone stay
// sites of the rounds that were cut with them (departed sites) until all servers have agreed on a round from which they
// are none; that round is also where new parts begin.
#ifndef TESSERA_SERVER_CONTROL_MEMBERS_PLANS_H_
#define TESSERA_SERVER_CONTROL_MEMBERS_PLANS_H_

#include <cstdint>
#include <optional>

#include "common/base/ids.h"
#include "proto/coordinator.pb.h"
#include "proto/coordinator_state.pb.h"
#include "server/control/job_facts.h"
#include "server/control/members/member_table.h"
#include "server/control/members/parts.h"
#include "server/control/members/server_outbox.h"
#include "server/control/members/server_table.h"

namespace tessera {

class Plans {
 public:
  // All outlive it.
  Plans(const JobFacts& facts, const ServerTable& servers, MemberTable* members,
        ServerOutbox* outbox)
      : facts_(facts), servers_(servers), members_(*members), outbox_(*outbox), parts_(facts) {}

  // The generation of the plan that was sent last; 0: none was.
  Generation generation() const { return generation_; }
  // The generation of the plan of those that begin together.
  Generation first() const { return first_; }
  const Parts& parts() const { return parts_; }
  // The last round that was agreed on for departed sites or parts.
  Exchange sites_begin() const { return sites_begin_; }

  // Sends the first plan, of the members that are planned by now and begin at exchange `first`.
  void SendFirst(Exchange first);
  // Sends a plan of the members as they are. `settled`, if not 0, is the proposal that it answers.
  void Send(uint64_t settled);
  // The plan as it was sent last, for a server that comes back.
  v1::PlanMessage Text() const;

  // The member is removed: from the round that is agreed on next it is no site.
  void EndSite(MemberRecord* member) const {
    if (facts_.subnets) member->site_until = Exchange(0);
  }
  // A departed site's end is yet to be agreed on.
  bool AwaitsRecut() const;
  // A member that ended is still a site of rounds that some server may have open.
  bool IsDepartedSite(const MemberRecord& member) const;
  // `agreed` is a round that nobody has opened yet: departed sites are none from then on, and parts are those of the
  // members in the plan, of the sizes `shares` if there are any.
  void BeginSites(Exchange agreed, const std::optional<Parts::Shares>& shares);
  // The shares that members should have by their speeds; nullopt: those that they have.
  std::optional<Parts::Shares> WantedShares() const { return parts_.Wanted(members_); }

  // Everything is to be agreed on anew. Raises the generation above its own and `least`, and returns it.
  Generation GoBack(Generation least);

  uint64_t changes() const { return changes_; }
  void Save(v1::MembershipState* state) const;
  void Load(const v1::MembershipState& state);

 private:
  const JobFacts& facts_;
  const ServerTable& servers_;
  MemberTable& members_;
  ServerOutbox& outbox_;
  Parts parts_;
  Generation generation_;
  Generation first_;
  Exchange sites_begin_;
  uint64_t changes_ = 0;
};

}  // namespace tessera

#endif  // TESSERA_SERVER_CONTROL_MEMBERS_PLANS_H_
