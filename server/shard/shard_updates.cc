// Shard: updates, from the first fold to the commit.
#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "common/codec/update_reader.h"
#include "server/shard/shard.h"

namespace tessera {
namespace {

// Decoding and the rule work on runs that stay in the first-level cache.
constexpr int64_t kTileEntries = 4096;

}  // namespace

void Shard::Fold(const Staged& push, float weight) {
  pending_.resize(slices_.size);
  UpdateReader reader(push.keys, push.payload);
  if (pending_count_++ == 0) {
    reader.Assign(slices_.size, weight, pending_.data());
  } else {
    reader.Accumulate(slices_.size, weight, pending_.data());
  }
}

// One pass: the last push of an update is decoded tile by tile, and each tile is applied while it
// is warm.
void Shard::FoldAndCommit(const Staged& push, const Verdict& verdict) {
  const Update update = BeginCommit(verdict.commit_scale);
  UpdateReader reader(push.keys, push.payload);
  float scratch[kTileEntries];
  std::vector<float*> state(state_.size());
  for (int i = 0; i < store_.block_count(); ++i) {
    const BlockStore::Rewrite block = store_.BeginRewrite(i);
    for (int64_t begin = 0; begin < block.size; begin += kTileEntries) {
      const int64_t count = std::min(kTileEntries, block.size - begin);
      const int64_t at = store_.offset(i) + begin;
      float* u = scratch;
      if (pending_count_ == 0) {
        reader.Assign(count, verdict.weight, u);
      } else {
        u = pending_.data() + at;
        reader.Accumulate(count, verdict.weight, u);
      }
      for (size_t s = 0; s < state_.size(); ++s) state[s] = state_[s].data() + at;
      rule_->Apply(update, u, block.in + begin, block.out + begin, state.data(), count);
    }
  }
  pending_count_ = 0;
}

Update Shard::BeginCommit(float scale) {
  counters_.version = counters_.version.Next();
  Update update;
  update.scale = scale;
  update.number = counters_.version.value();
  update.rate = static_cast<float>(schedule_.Factor(counters_.examples, pending_examples_));
  counters_.examples += pending_examples_;
  pending_examples_ = 0;
  open_folds_ = 0;
  return update;
}

void Shard::Commit(float scale, absl::Time now) {
  const Update update = BeginCommit(scale);
  std::vector<float*> state(state_.size());
  for (int i = 0; i < store_.block_count(); ++i) {
    const BlockStore::Rewrite block = store_.BeginRewrite(i);
    const int64_t at = store_.offset(i);
    for (size_t s = 0; s < state_.size(); ++s) state[s] = state_[s].data() + at;
    rule_->Apply(update, pending_.data() + at, block.in, block.out, state.data(), block.size);
  }
  pending_count_ = 0;
  if (records_) RecordCommit(now);
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
  counters_.staleness_sum += staleness;
  counters_.staleness_max = std::max(counters_.staleness_max, staleness);
}

}  // namespace tessera
