// The one thing at a time that all servers are asked to promise: an exchange, and what it is for.
//
// A server that has promised an exchange folds nothing of it before the proposal ends: with a plan that answers it, or
// because it is withdrawn. Where servers answer with later exchanges it is proposed again, under another number
// (agreement.h). Which proposal comes next is Admission's to decide.
#ifndef TESSERA_SERVER_CONTROL_MEMBERS_PROPOSALS_H_
#define TESSERA_SERVER_CONTROL_MEMBERS_PROPOSALS_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "common/base/ids.h"
#include "proto/coordinator.pb.h"
#include "proto/coordinator_state.pb.h"
#include "server/control/members/agreement.h"
#include "server/control/members/member_table.h"
#include "server/control/members/parts.h"
#include "server/control/members/server_outbox.h"
#include "server/control/members/server_table.h"

namespace tessera {

class Proposals {
 public:
  enum class Purpose {
    kJoiner,      // the exchange from which on a member takes part
    kRecut,       // the round from which on departed sites are none, or parts are of other sizes
    kDrain,       // the exchange behind which all members stop
    kCheckpoint,  // the exchange behind which a checkpoint is made
    kHold,        // nothing is folded behind that exchange: a server is to end with its checkpoint
  };

  // All outlive it.
  Proposals(const ServerTable& servers, const MemberTable& members, ServerOutbox* outbox)
      : servers_(servers), members_(members), outbox_(*outbox) {}

  bool open() const { return open_.has_value(); }
  bool IsFor(Purpose purpose) const { return open_ && open_->purpose == purpose; }
  // The member that the open proposal is for; MemberId(): none, or for no member.
  MemberId joiner() const { return open_ ? open_->joiner : MemberId(); }
  // Servers that have yet to answer the open proposal, if there is one.
  std::vector<ShardId> Missing() const;

  // None is open. All servers that take part are asked for `from`, or a later exchange. `joiner` comes with kJoiner
  // alone, `shares` with kRecut alone.
  void Open(Purpose purpose, Exchange from, MemberId joiner = MemberId(),
            std::optional<Parts::Shares> shares = std::nullopt);
  // The open proposal, for a checkpoint, ends with `message`, which is sent together with a proposal to hold the
  // exchange `from`: all servers promise that at once, as nothing of the exchange before it is folded.
  void TurnIntoHold(Exchange from, v1::PlanMessage message);

  // A server answers, or is lost and will not. True: all have promised agreed(), and the caller ends the proposal.
  bool OnReply(ShardId server, uint64_t number, Exchange promised);
  bool OnServerLost(ShardId server);
  // The exchange that is proposed.
  Exchange agreed() const { return open_->agreement.proposed(); }
  // The sizes of parts that the open proposal is for.
  const std::optional<Parts::Shares>& shares() const { return open_->shares; }

  // The open proposal ends with a plan, which is sent next and says that it answers the number returned.
  uint64_t End();
  // The open proposal ends; servers hear so with `message`.
  void Withdraw(v1::PlanMessage message = {});
  // Whatever is open ends, and what is sent next says so (FillWithdrawn), or that the job is over.
  void Drop() { open_.reset(); }

  // What a server that comes back has to know: the open proposal, and that all earlier ones have ended.
  void Fill(v1::PlanMessage* message) const;
  // All that were ever open have ended.
  void FillWithdrawn(v1::PlanMessage* message) const { message->set_withdraw(last_number_); }

  uint64_t changes() const { return changes_; }
  void Save(v1::MembershipState* state) const;
  // `is_closed`: the job ends, and nobody is asked any more.
  //   kInvalidArgument  the open proposal is for nobody who is to be agreed on, or the reverse
  absl::Status Load(const v1::MembershipState& state, bool is_closed);

 private:
  struct Proposal {
    Purpose purpose;
    MemberId joiner;
    std::optional<Parts::Shares> shares;
    Agreement agreement;
  };

  // What follows from what the servers have answered by now. True: they agree.
  bool Conclude(Agreement::Outcome outcome);
  void Send(uint64_t replaced);
  v1::Proposal Text() const;

  const ServerTable& servers_;
  const MemberTable& members_;
  ServerOutbox& outbox_;
  std::optional<Proposal> open_;
  uint64_t last_number_ = 0;
  uint64_t changes_ = 0;
};

}  // namespace tessera

#endif  // TESSERA_SERVER_CONTROL_MEMBERS_PROPOSALS_H_
