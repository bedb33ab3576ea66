// From which exchange on what counts: what servers are asked to promise next, and what follows once all have.
//
// Joiner      propose an exchange to all servers -> all agree -> plan with the member -> all applied it -> admitted.
//             One at a time, in the order of arrival; others wait.
// Recut       where members train subnets: propose a round -> all agree -> plan without departed sites, or with parts
//             of other sizes, from then on.
// Drain       propose an exchange -> all agree -> tell every worker to stop after it -> all have heard -> withdraw, and
//             all stop at the same place (job_drain.h).
// Checkpoint  propose an exchange -> all agree -> the order of the checkpoint -> withdraw.
// Hold        where a server is to end without a standby, the order of its checkpoint comes with a proposal of the
//             exchange after that, which stays open: nothing is done that would have to be done again.
//
// Of several things that are wanted at a time a drain comes first, then departed sites, joiners, new parts and
// checkpoints.
// A removal needs no promise: it is a plan without the member, at once. An open proposal outlives it unless it was the
// removed member's.
#ifndef TESSERA_SERVER_CONTROL_MEMBERS_ADMISSION_H_
#define TESSERA_SERVER_CONTROL_MEMBERS_ADMISSION_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "common/base/ids.h"
#include "proto/coordinator.pb.h"
#include "proto/coordinator_state.pb.h"
#include "server/control/members/job_drain.h"
#include "server/control/job_facts.h"
#include "server/control/members/job_stage.h"
#include "server/control/members/member_table.h"
#include "server/control/members/plans.h"
#include "server/control/members/proposals.h"
#include "server/control/members/server_outbox.h"
#include "server/control/members/server_table.h"
#include "server/control/members/starting_point.h"
#include "server/control/members/warm_up.h"

namespace tessera {

class Admission {
 public:
  // What it decides from. All outlive it.
  struct Tables {
    const JobFacts& facts;
    const ServerTable& servers;
    const JobStage& stage;
    const StartingPoint& start;
    const WarmUp& warm_up;
    MemberTable& members;
    Plans& plans;
    JobDrain& drain;
    ServerOutbox& outbox;
  };
  explicit Admission(const Tables& tables)
      : on_(tables), proposals_(tables.servers, tables.members, &tables.outbox) {}

  const Proposals& proposals() const { return proposals_; }

  // Proposes what is wanted next, unless something is open. Call it whenever something may have become wanted.
  void ProposeNext();
  // Admits the members of plans that all servers have applied.
  void AdmitPlanned();
  void OnReply(ShardId server, const v1::ProposalReply& reply);
  // The server is a site that takes no part any more: nobody waits for its promise.
  void OnServerLost(ShardId server);
  // The member, which was in `was`, has ended `how`: its proposal is withdrawn, or a plan goes out without it.
  void OnEnded(MemberRecord* member, MemberState was, MemberState how);
  // The drain is to be released if all members have heard of it.
  void ReleaseDrain();

  // --- checkpoints ---

  // All servers are to promise an exchange, `first` or a later one: agreed_checkpoint() says which.
  void ProposeCheckpoint(Exchange first);
  const std::optional<Exchange>& agreed_checkpoint() const { return agreed_checkpoint_; }
  // Tells all servers, and those that connect anew; ends the promise. `holds`: nothing of the exchange after that is
  // folded until EndHold, or until the job goes back.
  void OrderCheckpoint(const v1::CheckpointOrder& order, bool holds);
  void EndHold();
  // The order, or the proposal of one, is void.
  void DropCheckpoint();

  // What a server that comes back has to know of all this.
  void Fill(v1::PlanMessage* message) const;
  // The job goes back: nothing is wanted or promised any more. `message` will tell servers.
  void GoBack(v1::PlanMessage* message);
  // The job is over: nobody is asked any more.
  void Close() { proposals_.Drop(); }

  uint64_t changes() const { return changes_ + proposals_.changes(); }
  void Save(v1::MembershipState* state) const;
  //   kInvalidArgument  see Proposals
  absl::Status Load(const v1::MembershipState& state);

 private:
  // All servers have promised what is open.
  void Settle();
  void SettleJoiner(Exchange agreed);
  // The first waiting member that could be admitted; nullptr: there is none.
  MemberRecord* NextJoiner() const;
  void Propose(Proposals::Purpose purpose, MemberId joiner,
               std::optional<Parts::Shares> shares = std::nullopt);

  const Tables on_;
  Proposals proposals_;
  std::optional<Exchange> checkpoint_first_;   // to be proposed
  std::optional<Exchange> agreed_checkpoint_;  // the promise holds until the order is out
  std::optional<v1::CheckpointOrder> checkpoint_order_;
  uint64_t changes_ = 0;
};

}  // namespace tessera

#endif  // TESSERA_SERVER_CONTROL_MEMBERS_ADMISSION_H_
