// Shard: updates, from the first fold to the commit.
#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "common/checkpoint/manifest.h"
#include "common/codec/selective_codec.h"
#include "common/codec/update_reader.h"
#include "server/shard/shard.h"
#include "server/shard/update_run.h"

namespace tessera {
namespace {

// What workers say may be wrong, but a checkpoint of it has to be read again.
uint64_t SavedSum(uint64_t a, uint64_t b) {
  return b < kSavedCountEnd - 1 && a < kSavedCountEnd - 1 - b ? a + b : kSavedCountEnd - 1;
}

// A push of a selective codec of so small a share of the slice's bytes is applied entry by entry; beyond it, of every
// sixteenth entry where it is not packed, nearly every cache line is touched in any case (bench/commits).
constexpr int64_t kSentShare = 16;

}  // namespace

// Every shard that gets the push must decide the same, as -0 tells the two ways apart: this goes by the push's bytes
// and the job alone. Where pushes are combined a leader with a standby makes another pass than one without.
bool Shard::AppliesSent(const Staged& push) const {
  return push.keys == nullptr && pending_count_ == 0 && rule_->keeps_where_zero() &&
         !CombinesPushes() && push.payload.size() <= slices_.bytes() / kSentShare;
}

void Shard::Fold(const Staged& push, float weight) {
  pending_.resize(slices_.size);
  UpdateReader reader(push.codec, push.keys, push.payload);
  FoldRun({0, slices_.size}, pending_count_++ == 0, weight, &reader, &pending_);
}

void Shard::FoldAndCommit(const Staged& push, const Verdict& verdict) {
  const Update update = BeginCommit(verdict.commit_scale);
  if (AppliesSent(push)) {
    const std::unique_ptr<SelectedReader> reader = push.codec->selective()->NewReader(push.payload);
    return ApplySent(update, verdict.weight, reader.get(), *rule_, &store_);
  }
  UpdateReader reader(push.codec, push.keys, push.payload);
  FoldAndApplyRun({0, slices_.size}, pending_count_ == 0, verdict.weight, &reader, update,
                  &pending_, {rule_.get(), &store_, &state_});
  pending_count_ = 0;
}

Update Shard::BeginCommit(float scale) {
  counters_.version = counters_.version.Next();
  Update update;
  update.scale = scale;
  update.number = counters_.version.value();
  update.rate = static_cast<float>(schedule_.Factor(counters_.examples, pending_examples_));
  counters_.examples = SavedSum(counters_.examples, pending_examples_);
  pending_examples_ = 0;
  open_folds_ = 0;
  return update;
}

void Shard::Commit(float scale, absl::Time now) {
  ApplyRun({0, slices_.size}, BeginCommit(scale), pending_, {rule_.get(), &store_, &state_});
  pending_count_ = 0;
  if (records_) RecordCommit(now);
}

// How many pushes each half has is no matter of the policy's.
void Shard::FoldHalf(const Staged& push, bool commits) {
  const LayerHalves::Push half = {push.of.part, push.codec, push.keys, &push.payload, push.summed};
  pending_.resize(slices_.size);
  if (commits) {
    halves_->FoldAndCommit(half, BeginCommit(/*scale=*/1), &pending_,
                           {rule_.get(), &store_, &state_});
  } else {
    halves_->Fold(half, &pending_);
  }
}

void Shard::CommitHalves() {
  halves_->Commit(BeginCommit(/*scale=*/1), pending_, {rule_.get(), &store_, &state_});
}

void Shard::CommitEntries(float scale) {
  cores_->Commit(BeginCommit(scale), *rule_, &store_);
  MaybeSelectCore();
}

void Shard::MaybeSelectCore() {
  if (cores_ == nullptr) return;
  absl::flat_hash_set<MemberId> begun;
  for (const auto& [id, member] : members_) {
    if (member.folded >= member.first) begun.insert(id);
  }
  cores_->MaybeSelect(begun, policy_->Collecting(), &store_);
}

// Draws explorers while nothing else is to be done.
bool Shard::PrepareKeys() {
  if (cores_ == nullptr) return false;
  absl::flat_hash_map<MemberId, Exchange> next;
  for (const auto& [id, member] : members_) next[id] = member.accepted.Next();
  return cores_->Prepare(plan_, next);
}

void Shard::CommitRound() {
  BeginCommit(/*scale=*/1);
  rounds_->Commit(&store_);
}

void Shard::CountStaleness(Version base) {
  const uint64_t staleness = counters_.version.value() - base.value();
  ++counters_.staleness[std::min<uint64_t>(staleness, counters_.staleness.size() - 1)];
  counters_.staleness_sum = SavedSum(counters_.staleness_sum, staleness);
  counters_.staleness_max = std::max(counters_.staleness_max, staleness);
}

}  // namespace tessera
