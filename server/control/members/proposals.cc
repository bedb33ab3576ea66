#include "server/control/members/proposals.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace tessera {

std::vector<ShardId> Proposals::Missing() const {
  return open_ ? open_->agreement.Missing() : std::vector<ShardId>();
}

void Proposals::Open(Purpose purpose, Exchange from, MemberId joiner,
                     std::optional<Parts::Shares> shares) {
  open_ = Proposal{purpose, joiner, std::move(shares),
                   Agreement(servers_.count(), ++last_number_, from)};
  // Replicas that are not here promise nothing, and nobody waits for them.
  for (int i = 0; i < servers_.count(); ++i) {
    if (!servers_.IsHere(ShardId(i))) open_->agreement.Drop(ShardId(i));
  }
  Send(0);
}

// One message withdraws the old proposal and makes the new one: between two messages a server could go past the
// exchange that is to be held.
void Proposals::TurnIntoHold(Exchange from, v1::PlanMessage message) {
  message.set_withdraw(open_->agreement.number());
  open_ = Proposal{Purpose::kHold, MemberId(), std::nullopt,
                   Agreement(servers_.count(), ++last_number_, from)};
  ++changes_;
  *message.mutable_propose() = Text();
  outbox_.TellAll(message);
}

bool Proposals::OnReply(ShardId server, uint64_t number, Exchange promised) {
  return open_ && Conclude(open_->agreement.OnReply(server, number, promised));
}

bool Proposals::OnServerLost(ShardId server) {
  return open_ && Conclude(open_->agreement.Drop(server));
}

bool Proposals::Conclude(Agreement::Outcome outcome) {
  // Some server could only promise a later exchange: all are asked for that one, under a new number, so that promises
  // of the old one cannot be taken for it.
  if (outcome == Agreement::Outcome::kRaised) {
    const uint64_t replaced = open_->agreement.number();
    open_->agreement = open_->agreement.Raised(++last_number_);
    Send(replaced);
  }
  changes_ += outcome == Agreement::Outcome::kAgreed ? 1 : 0;
  return outcome == Agreement::Outcome::kAgreed;
}

uint64_t Proposals::End() {
  const uint64_t ended = open_->agreement.number();
  open_.reset();
  return ended;
}

void Proposals::Withdraw(v1::PlanMessage message) {
  message.set_withdraw(End());
  ++changes_;
  outbox_.TellAll(message);
}

void Proposals::Send(uint64_t replaced) {
  ++changes_;
  v1::PlanMessage message;
  *message.mutable_propose() = Text();
  if (replaced != 0) message.set_withdraw(replaced);
  outbox_.TellAll(message);
}

v1::Proposal Proposals::Text() const {
  v1::Proposal proposal;
  proposal.set_proposal(open_->agreement.number());
  proposal.mutable_member()->set_first_exchange(open_->agreement.proposed().value());
  if (open_->purpose == Purpose::kJoiner) {
    proposal.mutable_member()->set_member(open_->joiner.value());
    proposal.mutable_member()->set_rank(members_.Find(open_->joiner)->rank.value());
  }
  return proposal;
}

// A server that connects anew may hold promises of any earlier proposal: it is told that all before the open one are
// void.
void Proposals::Fill(v1::PlanMessage* message) const {
  if (!open_) return FillWithdrawn(message);
  *message->mutable_propose() = Text();
  message->set_withdraw(open_->agreement.number() - 1);
}

void Proposals::Save(v1::MembershipState* state) const {
  state->set_last_proposal(last_number_);
  if (!open_) return;
  v1::OpenProposal& open = *state->mutable_open();
  open.set_joiner(open_->joiner.value());
  open.set_recut(open_->purpose == Purpose::kRecut);
  open.set_checkpoint(open_->purpose == Purpose::kCheckpoint);
  open.set_hold(open_->purpose == Purpose::kHold);
  if (open_->shares) {
    v1::PartShares& shares = *open.mutable_shares();
    for (const auto& [member, share] : *open_->shares) {
      shares.add_members(member.value());
      shares.add_shares(share);
    }
  }
  open_->agreement.Save(&open);
}

absl::Status Proposals::Load(const v1::MembershipState& state, bool is_closed) {
  last_number_ = state.last_proposal();
  open_.reset();
  if (state.has_open()) {
    const v1::OpenProposal& open = state.open();
    const MemberRecord* const joiner = members_.Find(MemberId(open.joiner()));
    if (open.joiner() != 0 && (joiner == nullptr || joiner->state != MemberState::kProposed)) {
      return absl::InvalidArgumentError(
          absl::StrCat("member ", open.joiner(), " is none that is to be agreed on"));
    }
    std::optional<Parts::Shares> shares;
    if (open.has_shares()) {
      shares.emplace();
      const int count = std::min(open.shares().members_size(), open.shares().shares_size());
      for (int i = 0; i < count; ++i) {
        shares->push_back({MemberId(open.shares().members(i)), open.shares().shares(i)});
      }
    }
    const Purpose purpose = open.joiner() != 0  ? Purpose::kJoiner
                            : open.recut()      ? Purpose::kRecut
                            : open.hold()       ? Purpose::kHold
                            : open.checkpoint() ? Purpose::kCheckpoint
                                                : Purpose::kDrain;
    open_ = Proposal{purpose, MemberId(open.joiner()), std::move(shares),
                     Agreement::Load(open, servers_.count())};
  }
  // The two halves of a state are saved together, and contradict each other only where it was damaged.
  const auto& all = members_.all();
  const bool is_proposed = std::any_of(all.begin(), all.end(), [](const auto& member) {
    return member.second.state == MemberState::kProposed;
  });
  if (!is_closed && is_proposed != (joiner() != MemberId())) {
    return absl::InvalidArgumentError("a member is to be agreed on, and nobody was asked");
  }
  return absl::OkStatus();
}

}  // namespace tessera
