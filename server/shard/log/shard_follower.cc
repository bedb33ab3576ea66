#include "server/shard/log/shard_follower.h"

#include <algorithm>
#include <string>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/codec/selective_codec.h"
#include "server/shard/forms/core_exchange.h"
#include "server/shard/image_reader.h"

namespace tessera {
namespace {

// Keys of a small shard's cores take no more.
constexpr int64_t kKeyBytesLeast = 1024;

// One is open at a time, and said again with every connection to the coordinator.
constexpr size_t kOpenProposalsMax = 4096;

absl::Status Contradicts(const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat("log of a shard: ", what));
}

}  // namespace

int64_t ShardFollower::event_bytes_max() const {
  const ShardSlices& slices = state_.traits.slices;
  // No codec writes an entry in more than twice an f32's bytes, and a selective one says what it may need.
  const SelectiveCodec* const selective = state_.traits.codecs.push->selective();
  const int64_t push =
      slices.bytes() + (selective != nullptr ? selective->BytesMax(slices.size) : slices.bytes());
  return std::max(slices.bytes() * state_.form->image_arrays_max() + kKeyBytesLeast, push);
}

// A selection works on a snapshot, so that it does not matter when its pieces are done, but that they are before their
// result is asked for.
void ShardFollower::FinishSelection() {
  while (state_.form->AdvanceSelection()) {
  }
}

absl::Status ShardFollower::Apply(ShardEvent event) {
  FinishSelection();
  return std::visit([this](auto& happened) { return Follow(std::move(happened)); }, event);
}

// The leader accepted this push, so that the same shard here must accept it, too: anything else is another history.
absl::Status ShardFollower::Follow(PushEvent push) {
  if (state_.CombinesPushes()) return Contradicts("has a push, want folds and their sum");
  const std::string which =
      absl::StrCat("member ", push.push.member.value(), " exchange ", push.push.exchange.value());
  TESSERA_ASSIGN_OR_RETURN(const PushAccepted accepted, shard_.Accept(std::move(push.push)));
  if (!accepted.need_keys && !accepted.duplicate) return absl::OkStatus();
  return Contradicts(
      absl::StrCat("has a push of ", which, ", which ",
                   accepted.duplicate ? "is here" : "names a core that is not here"));
}

absl::Status ShardFollower::Follow(const AdvanceEvent& advance) {
  if (state_.CombinesPushes()) {
    return Contradicts("has something that was due, want folds and their sum");
  }
  shard_.AdvancePushes(advance.now);
  return absl::OkStatus();
}

absl::Status ShardFollower::Follow(const PlanEvent& plan) {
  // What is staged was accepted by when its sender began.
  for (const PlanMember& m : plan.plan.members) {
    const PlanMember* const before = shard_.plan().Find(m.member);
    if (before == nullptr || before->first_exchange == m.first_exchange) continue;
    return Contradicts(
        absl::StrCat("has a plan in which member ", m.member.value(), " begins another time"));
  }
  shard_.SetPlan(plan.plan);
  return absl::OkStatus();
}

absl::Status ShardFollower::Follow(const ProposeEvent& proposal) {
  // The promise was the leader's to make: it is taken as it is, and not worked out again.
  // The leader's log is believed in what it decided, and bounded in what it can make this process hold.
  if (state_.members.proposals().size() >= kOpenProposalsMax) {
    return Contradicts("has too many proposals");
  }
  state_.members.Promise(proposal);
  return absl::OkStatus();
}

absl::Status ShardFollower::Follow(const WithdrawEvent& withdraw) {
  shard_.Withdraw(withdraw.proposal);
  return absl::OkStatus();
}

absl::Status ShardFollower::Follow(const RestEvent& rest) {
  shard_.Rest(rest.member, rest.after, rest.word);
  return absl::OkStatus();
}

absl::Status ShardFollower::Follow(const CoreQuestionEvent& core) {
  if (state_.form->cores() != nullptr) state_.form->cores()->Ask(core.question);
  // Who takes over has what its predecessor told of it.
  FinishSelection();
  return absl::OkStatus();
}

// The copy itself was lost with the leader, if that is lost: an order to make it again is refused (CopyOrders::Order).
absl::Status ShardFollower::Follow(const CopiedEvent& copied) {
  state_.copies.SetMadeElsewhere(copied.order);
  return absl::OkStatus();
}

// Counts what Shard::AdvancePushes counts for a push. The values come with the sum.
absl::Status ShardFollower::Follow(const FoldEvent& fold) {
  ShardMember* const member = state_.members.Find(fold.member);
  const Version now = state_.counters.version;
  if (!state_.CombinesPushes() || member == nullptr ||
      fold.exchange != state_.policy->Collecting() || state_.policy->NextInOrder() != fold.member ||
      fold.base > now || scale_) {
    // Anything but the next fold in order means that this copy and the leader have parted.
    return Contradicts(absl::StrCat("has a fold of member ", fold.member.value(), " exchange ",
                                    fold.exchange.value(), ", want another"));
  }
  const Verdict verdict = state_.BeginFold(
      {fold.member, fold.exchange, fold.base, now, fold.examples, fold.time}, /*has_base=*/true);
  ++state_.counters.pushes;
  // The push was checked and counted by the leader; here its member's place moves as if it had been folded.
  state_.members.OnAccepted(fold.member, fold.exchange, member);
  member->folded = fold.exchange;
  state_.members.RestIfDue(fold.member, *member);
  if (verdict.commit) scale_ = verdict.commit_scale;
  return absl::OkStatus();
}

absl::Status ShardFollower::Follow(const CommitEvent& commit) {
  const int64_t bytes = state_.traits.slices.bytes();
  if (!state_.CombinesPushes() || commit.sum.size() != bytes) {
    return Contradicts(absl::StrCat("has a sum of ", commit.sum.size(), " bytes, want ", bytes));
  }
  std::optional<float> scale = std::exchange(scale_, std::nullopt);
  // No fold completed the update: a removal or the time did.
  if (!scale.has_value()) scale = state_.policy->CommitDue(commit.time);
  if (!scale.has_value()) return Contradicts("has a commit, and none is due");
  TESSERA_CHECK(shard_.log_ == nullptr);
  // Read where it was received, as the last push of an update is.
  StagedPush sum;
  sum.entries = state_.traits.keys->dense();
  sum.coded = state_.traits.dense_forms().Find(Codec());
  sum.payload = commit.sum.Share();
  state_.form->FoldAndCommit(sum, /*weight=*/1, state_.BeginCommit(*scale));
  return absl::OkStatus();
}

absl::Status ShardFollower::Follow(const ImageEvent& image) {
  // An image replaces everything, so it may only come first.
  if (state_.is_replica || !state_.IsAsMade()) {
    return Contradicts("has an image, want it at the beginning");
  }
  const Exchange end(kExchangeEnd);
  if (image.policy.next >= end || image.whole_from >= end) {
    return Contradicts("has an image of an exchange beyond any");
  }
  for (const ImageEvent::Member& m : image.members) {
    const PlanMember* const planned = image.plan.Find(m.member);
    // A member has folded at least what was before its first exchange.
    if (planned == nullptr || m.folded.Next() < planned->first_exchange || m.folded >= end) {
      return Contradicts(absl::StrCat("has an image in which member ", m.member.value(),
                                      " has made exchange ", m.folded.value()));
    }
  }
  const bool has_cores = state_.form->cores() != nullptr;
  if (has_cores != image.cores.has_value()) return Contradicts("has an image of another method");
  ImageReader values(image.values);
  // Dense forms say the size of their image; with cores the rest is keys, whose size the image says.
  const int64_t bytes = state_.traits.slices.bytes() *
                        (has_cores ? 1 : 1 + static_cast<int64_t>(state_.form->saved_arrays()));
  const int64_t more = image.values.size() - bytes;
  if (more < 0 || (more > 0 && !has_cores)) {
    return Contradicts(
        absl::StrCat("has an image of ", image.values.size(), " bytes, want ", bytes));
  }
  // Values come block by block, in the order in which they lie.
  for (int i = 0; i < state_.store.block_count(); ++i) {
    const BlockStore::Rewrite block = state_.store.BeginRewrite(i);
    values.Read(block.size, block.out);
  }
  shard_.SetPlan(image.plan);
  state_.policy->SetState(image.policy);
  state_.members.SetImage(image);
  // Counters are the leader's, but for the hash of what this process began with.
  const uint64_t initial_hash = state_.counters.initial_hash;
  state_.counters = image.counters;
  state_.counters.initial_hash = initial_hash;
  state_.copies.SetMadeElsewhere(image.copied);
  // After the plan, which may begin a selection where one is due.
  TESSERA_RETURN_IF_ERROR(state_.form->SetImage(image, &values));
  if (values.left() > 0) return Contradicts("has an image with more values than it says");
  return absl::OkStatus();
}

}  // namespace tessera
