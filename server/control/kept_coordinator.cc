#include "server/control/kept_coordinator.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"

namespace tessera {
namespace {

// Terms that are remembered: whoever was connected that many takeovers ago has heard of a later one by now.
constexpr int kTermsMax = 1000;

}  // namespace

KeptCoordinator::KeptCoordinator(std::unique_ptr<Coordinator> coordinator,
                                 const v1::CoordinatorWord& word, bool is_kept)
    : coordinator_(std::move(coordinator)),
      word_(word),
      is_kept_(is_kept),
      begun_at_(word.changes()) {}

v1::CoordinatorWord KeptCoordinator::Word() const {
  v1::CoordinatorWord word = word_;
  if (is_kept_) word.set_changes(is_late_ ? changes() : kept_);
  return word;
}

v1::CoordinatorState KeptCoordinator::State(const StateMoment& now) const {
  v1::CoordinatorState state = coordinator_->Save();
  state.set_run(word_.run());
  state.set_term(word_.term());
  state.set_changes(changes());
  state.set_server_key(word_.server_key());
  Stamp(now, &state);
  if (state.terms_size() >= kTermsMax) {
    state.mutable_terms()->DeleteSubrange(0, state.terms_size() - kTermsMax + 1);
  }
  v1::TermState& term = *state.add_terms();
  term.set_term(word_.term());
  term.set_begun_at(begun_at_);
  return state;
}

void KeptCoordinator::OnKept(uint64_t changes, bool in_time) {
  kept_ = changes;
  if (in_time && !IsAhead()) is_late_ = false;
}

uint64_t KeptCoordinator::Collect() {
  Batch batch;
  batch.changes = changes();
  batch.event = ++events_;
  batch.outbox = coordinator_->TakeOutbox();
  batch.host_outbox = coordinator_->TakeHostOutbox();
  batch.tasks = coordinator_->TakeDiskTasks();
  batch.replies = coordinator_->TakeReplies();
  for (const Coordinator::EvaluateAnswer& answer : batch.replies) DropReplyTo(answer.member);
  const uint64_t follows_from = batch.changes;
  if (!batch.is_empty()) pending_.push_back(std::move(batch));
  return follows_from;
}

KeptCoordinator::Told KeptCoordinator::Release() {
  Told told;
  if (is_late_ && told_ != changes()) {
    told_ = changes();
    told.ahead = Word();
  }
  while (!pending_.empty() && MayBeTold(pending_.front().changes)) {
    told.batches.push_back(std::move(pending_.front()));
    pending_.pop_front();
  }
  return told;
}

void KeptCoordinator::DropReplyTo(MemberId member) {
  const auto is_its = [member](const Coordinator::EvaluateAnswer& answer) {
    return answer.member == member;
  };
  for (auto batch = pending_.begin(); batch != pending_.end();) {
    auto& replies = batch->replies;
    const auto end = std::remove_if(replies.begin(), replies.end(), is_its);
    const bool has_it = end != replies.end();
    replies.erase(end, replies.end());
    batch = has_it && batch->is_empty() ? pending_.erase(batch) : std::next(batch);
  }
}

void KeptCoordinator::DropFor(ShardId server) {
  for (Batch& batch : pending_) {
    const auto is_its = [server](const Outgoing& outgoing) { return outgoing.server == server; };
    batch.outbox.erase(std::remove_if(batch.outbox.begin(), batch.outbox.end(), is_its),
                       batch.outbox.end());
  }
}

void KeptCoordinator::DropForHost(uint32_t host) {
  for (Batch& batch : pending_) {
    const auto is_its = [host](const HostOutgoing& outgoing) { return outgoing.host == host; };
    batch.host_outbox.erase(
        std::remove_if(batch.host_outbox.begin(), batch.host_outbox.end(), is_its),
        batch.host_outbox.end());
  }
}

absl::Status KeptCoordinator::CheckHello(const v1::ServerHello& hello, absl::Time now) {
  TESSERA_RETURN_IF_ERROR(coordinator_->CheckServer(hello));
  return CheckClaim(ClaimOf(hello), now);
}

absl::Status KeptCoordinator::CheckHello(const v1::HostHello& hello, absl::Time now) {
  TESSERA_RETURN_IF_ERROR(coordinator_->CheckHost(hello));
  return CheckClaim(ClaimOf(hello), now);
}

absl::Status KeptCoordinator::CheckClaim(const HelloClaim& claim, absl::Time now) {
  if (claim.term > word_.term()) {
    return absl::UnavailableError(absl::StrCat("a coordinator of term ", claim.term,
                                               " has spoken, and this one is of term ",
                                               word_.term()));
  }
  if (claim.term == word_.term()) return absl::OkStatus();
  // What the next term went on from is all that is known of `claim.term`.
  uint64_t kept = begun_at_;
  for (const v1::TermState& later : coordinator_->terms()) {
    if (later.term() > claim.term) kept = std::min(kept, later.begun_at());
  }
  if (claim.changes <= kept) return absl::OkStatus();
  const bool is_servers = claim.server_key != 0 && claim.server_key == word_.server_key();
  if (claim.run != word_.run() || !is_servers) {
    return absl::InvalidArgumentError(absl::StrCat(
        "server ", claim.rank, ": says that it was told change ", claim.changes, " of term ",
        claim.term, ", without the ", claim.run != word_.run() ? "number" : "server_key",
        " of the run; whoever was told something knows it"));
  }
  const std::string why = absl::StrCat(
      "server ", claim.rank, " was told what the coordinator had not kept when it died (change ",
      claim.changes, ", kept ", kept,
      "): its disk was too slow. Start the job again, with checkpoint.restore if there is one");
  coordinator_->GiveUp(why, now);
  return absl::FailedPreconditionError(why);
}

}  // namespace tessera
