// Shard: what a standby is told, and how it does the same.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/codec/selective_codec.h"
#include "common/codec/update_reader.h"
#include "server/shard/image_reader.h"
#include "server/shard/shard.h"
#include "server/shard/forms/update_run.h"

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

bool Shard::CombinesPushes() const {
  return policy_->Collecting() != Exchange(0) && form_->sums_pushes() && !replica_;
}

// The sum is sent from where it is; the next one is formed elsewhere.
void Shard::RecordCommit(absl::Time now) {
  std::shared_ptr<std::vector<float>> sent;
  for (std::shared_ptr<std::vector<float>>& kept : sums_) {
    if (kept.use_count() == 1) sent = kept;
  }
  if (sent == nullptr) sent = sums_.emplace_back(std::make_shared<std::vector<float>>());
  std::swap(*sent, *form_->last_sum());
  CommitEvent commit;
  commit.time = now;
  commit.sum.Append({reinterpret_cast<const char*>(sent->data()), traits_.slices.bytes()}, sent);
  recorded_.push_back(std::move(commit));
}

std::vector<ShardEvent> Shard::StagedPushes() const {
  std::vector<ShardEvent> events;
  if (CombinesPushes()) return events;
  for (const StagedPush& push : staged_) events.push_back(PushEvent{push.Share()});
  return events;
}

std::optional<ImageEvent> Shard::TakeImage() {
  TESSERA_CHECK(!replica_);
  if (open_folds_ > 0) return std::nullopt;
  // Who follows would ask for the keys; it is folded in a moment.
  for (const StagedPush& push : staged_) {
    if (!form_->IsSendable(push)) return std::nullopt;
  }
  ImageEvent image;
  image.plan = plan_;
  for (const auto& [id, member] : members_) {
    image.members.push_back({id, member.folded, member.rests_after, member.rest_number});
  }
  std::sort(image.members.begin(), image.members.end(),
            [](const auto& a, const auto& b) { return a.member < b.member; });
  image.policy = policy_->State();
  for (const Open& open : open_proposals_) image.proposals.push_back({open.proposal, open.first});
  image.counters = counters_;
  image.counters.pushes -= staged_.size();
  image.copied = copied_;
  image.removed.assign(removed_.begin(), removed_.end());
  const auto snapshot = store_.TakeSnapshot();
  for (const std::shared_ptr<const Block>& block : snapshot->blocks()) {
    image.values.Append({reinterpret_cast<const char*>(block->data()),
                         block->size() * static_cast<int64_t>(sizeof(float))},
                        snapshot);
  }
  form_->TakeImage(*snapshot, &image);
  return image;
}

int64_t Shard::event_bytes_max() const {
  const ShardSlices& slices = traits_.slices;
  // No codec writes an entry in more than twice an f32's bytes, and a selective one says what it may need.
  const SelectiveCodec* const selective = traits_.codecs.push->selective();
  const int64_t push =
      slices.bytes() + (selective != nullptr ? selective->BytesMax(slices.size) : slices.bytes());
  return std::max(slices.bytes() * form_->image_arrays_max() + kKeyBytesLeast, push);
}

absl::Status Shard::Apply(ShardEvent event) {
  // A selection works on a snapshot, so that it does not matter when its pieces are done, but that they
  // are before their result is asked for.
  while (form_->AdvanceSelection()) {
  }
  if (auto* push = std::get_if<PushEvent>(&event)) {
    if (CombinesPushes()) return Contradicts("has a push, want folds and their sum");
    const std::string which = absl::StrCat("member ", push->push.member.value(), " exchange ",
                                           push->push.exchange.value());
    TESSERA_ASSIGN_OR_RETURN(const PushAccepted accepted, Accept(std::move(push->push)));
    if (!accepted.need_keys && !accepted.duplicate) return absl::OkStatus();
    return Contradicts(
        absl::StrCat("has a push of ", which, ", which ",
                     accepted.duplicate ? "is here" : "names a core that is not here"));
  }
  if (const auto* advance = std::get_if<AdvanceEvent>(&event)) {
    if (CombinesPushes()) {
      return Contradicts("has something that was due, want folds and their sum");
    }
    AdvancePushes(advance->now);
  } else if (const auto* fold = std::get_if<FoldEvent>(&event)) {
    return Follow(*fold);
  } else if (const auto* commit = std::get_if<CommitEvent>(&event)) {
    return Follow(*commit);
  } else if (const auto* plan = std::get_if<PlanEvent>(&event)) {
    // What is staged was accepted by when its sender began.
    for (const PlanMember& m : plan->plan.members) {
      const PlanMember* const before = plan_.Find(m.member);
      if (before == nullptr || before->first_exchange == m.first_exchange) continue;
      return Contradicts(
          absl::StrCat("has a plan in which member ", m.member.value(), " begins another time"));
    }
    SetPlan(plan->plan);
  } else if (const auto* proposal = std::get_if<ProposeEvent>(&event)) {
    if (open_proposals_.size() >= kOpenProposalsMax) return Contradicts("has too many proposals");
    open_proposals_.push_back({proposal->proposal, proposal->first});
  } else if (const auto* withdraw = std::get_if<WithdrawEvent>(&event)) {
    Withdraw(withdraw->proposal);
  } else if (const auto* rest = std::get_if<RestEvent>(&event)) {
    Rest(rest->member, rest->after, rest->word);
  } else if (const auto* core = std::get_if<CoreQuestionEvent>(&event)) {
    if (form_->cores() != nullptr) form_->cores()->Ask(core->question);
    // Who takes over has what its predecessor told of it.
    while (form_->AdvanceSelection()) {
    }
  } else if (const auto* copied = std::get_if<CopiedEvent>(&event)) {
    copied_ = copied->order;
    is_copied_here_ = false;
  } else {
    return Follow(std::get<ImageEvent>(event));
  }
  return absl::OkStatus();
}

absl::Status Shard::Follow(const FoldEvent& fold) {
  const auto found = members_.find(fold.member);
  if (!CombinesPushes() || found == members_.end() || fold.exchange != policy_->Collecting() ||
      policy_->NextInOrder() != fold.member || fold.base > counters_.version || followed_scale_) {
    return Contradicts(absl::StrCat("has a fold of member ", fold.member.value(), " exchange ",
                                    fold.exchange.value(), ", want another"));
  }
  CountStaleness(fold.base);
  const Verdict verdict = policy_->OnPush(
      {fold.member, fold.exchange, fold.base, counters_.version, fold.examples, fold.time});
  pending_examples_ += fold.examples;
  ++open_folds_;
  ++counters_.pushes;
  MemberState& member = found->second;
  member.accepted = fold.exchange;
  member.folded = fold.exchange;
  if (!member.heard_from.has_value()) member.heard_from = fold.exchange;
  if (member.rests_after && *member.rests_after < fold.exchange) Wake(fold.member, &member);
  if (member.rests_after == fold.exchange) policy_->SetResting(fold.member, true);
  if (verdict.commit) followed_scale_ = verdict.commit_scale;
  return absl::OkStatus();
}

absl::Status Shard::Follow(const CommitEvent& commit) {
  if (!CombinesPushes() || commit.sum.size() != traits_.slices.bytes()) {
    return Contradicts(
        absl::StrCat("has a sum of ", commit.sum.size(), " bytes, want ", traits_.slices.bytes()));
  }
  std::optional<float> scale = std::exchange(followed_scale_, std::nullopt);
  if (!scale.has_value()) scale = policy_->CommitDue(commit.time);
  if (!scale.has_value()) return Contradicts("has a commit, and none is due");
  TESSERA_CHECK(!records_);
  // Read where it was received, as the last push of an update is.
  StagedPush sum;
  sum.entries = traits_.keys->dense();
  sum.coded = traits_.dense_forms().Find(Codec());
  sum.payload = commit.sum.Share();
  form_->FoldAndCommit(sum, /*weight=*/1, BeginCommit(*scale));
  return absl::OkStatus();
}

absl::Status Shard::Follow(const ImageEvent& image) {
  if (replica_ || !is_as_made()) {
    return Contradicts("has an image, want it at the beginning");
  }
  const Exchange end(kExchangeEnd);
  if (image.policy.next >= end || image.whole_from >= end) {
    return Contradicts("has an image of an exchange beyond any");
  }
  for (const ImageEvent::Member& m : image.members) {
    const PlanMember* const planned = image.plan.Find(m.member);
    if (planned == nullptr || m.folded.Next() < planned->first_exchange || m.folded >= end) {
      return Contradicts(absl::StrCat("has an image in which member ", m.member.value(),
                                      " has made exchange ", m.folded.value()));
    }
  }
  if ((form_->cores() != nullptr) != image.cores.has_value()) {
    return Contradicts("has an image of another method");
  }
  ImageReader values(image.values);
  const bool has_cores = form_->cores() != nullptr;
  const int64_t bytes =
      traits_.slices.bytes() * (has_cores ? 1 : 1 + static_cast<int64_t>(form_->saved_arrays()));
  const int64_t more = image.values.size() - bytes;
  if (more < 0 || (more > 0 && !has_cores)) {
    return Contradicts(
        absl::StrCat("has an image of ", image.values.size(), " bytes, want ", bytes));
  }
  for (int i = 0; i < store_.block_count(); ++i) {
    const BlockStore::Rewrite block = store_.BeginRewrite(i);
    values.Read(block.size, block.out);
  }
  SetPlan(image.plan);
  policy_->SetState(image.policy);
  for (const ImageEvent::Member& m : image.members) {
    MemberState& member = members_[m.member];
    member.accepted = m.folded;
    member.folded = m.folded;
    member.heard_from = m.folded;
    member.rests_after = m.rests_after;
    member.rest_number = m.rest_number;
    if (m.rests_after == m.folded) policy_->SetResting(m.member, true);
  }
  for (const ProposeEvent& open : image.proposals) {
    open_proposals_.push_back({open.proposal, open.first});
  }
  const uint64_t initial_hash = counters_.initial_hash;
  counters_ = image.counters;
  counters_.staged_bytes = 0;
  counters_.initial_hash = initial_hash;
  copied_ = image.copied;
  is_copied_here_ = copied_.mark.number == 0;
  removed_.assign(image.removed.begin(), image.removed.end());
  // After the plan, which may begin a selection where one is due.
  TESSERA_RETURN_IF_ERROR(form_->SetImage(image, &values));
  if (values.left() > 0) return Contradicts("has an image with more values than it says");
  return absl::OkStatus();
}

}  // namespace tessera
