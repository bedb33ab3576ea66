#include "server/shard/forms/update_run.h"

#include <algorithm>
#include <optional>

#include "common/base/check.h"

namespace tessera {
namespace {

// Decoding and the rule work on runs that stay in the first-level cache.
constexpr int64_t kUpdateTile = 4096;
// Entries of a push that are gathered at a time.
constexpr int64_t kSentEntries = 1024;

// Calls write(block, its first entry) for the blocks of `run`, which are about to be replaced, or the parts of them
// that lie in it.
template <typename Write>
void RewriteRun(const EntryRun& run, BlockStore* store, Write write) {
  for (int i = 0; i < store->block_count(); ++i) {
    const int64_t at = store->offset(i);
    const int64_t end = at + store->block(i).size();
    if (end <= run.begin) continue;
    if (at >= run.end) return;
    BlockStore::Rewrite block = store->BeginRewrite(i);
    const int64_t before = std::max<int64_t>(0, run.begin - at);
    const int64_t behind = std::max<int64_t>(0, end - run.end);
    // Where a reader holds the block, what the run does not have of it goes along.
    if (block.in != block.out) {
      std::copy_n(block.in, before, block.out);
      std::copy_n(block.in + block.size - behind, behind, block.out + block.size - behind);
    }
    block.in += before;
    block.out += before;
    block.size -= before + behind;
    write(block, at + before);
  }
}

}  // namespace

void FoldRun(const EntryRun& run, bool is_first, float weight, UpdateReader* push,
             std::vector<float>* pending) {
  float* const sum = pending->data() + run.begin;
  // The first push assigns, so that the sum need not be zeroed.
  if (is_first) {
    push->Assign(run.end - run.begin, weight, sum);
  } else {
    push->Accumulate(run.end - run.begin, weight, sum);
  }
}

void ApplyRun(const EntryRun& run, const Update& update, const std::vector<float>& pending,
              const UpdateTarget& target) {
  std::vector<float*> state(target.states->size());
  RewriteRun(run, target.store, [&](const BlockStore::Rewrite& block, int64_t at) {
    for (size_t s = 0; s < state.size(); ++s) state[s] = (*target.states)[s].data() + at;
    target.rule->Apply(update, pending.data() + at, block.in, block.out, state.data(), block.size);
  });
}

void FoldAndApplyRun(const EntryRun& run, bool is_first, float weight, UpdateReader* push,
                     const Update& update, std::vector<float>* pending,
                     const UpdateTarget& target) {
  float scratch[kUpdateTile];
  std::vector<float*> state(target.states->size());
  RewriteRun(run, target.store, [&](const BlockStore::Rewrite& block, int64_t first) {
    for (int64_t begin = 0; begin < block.size; begin += kUpdateTile) {
      const int64_t count = std::min(kUpdateTile, block.size - begin);
      const int64_t at = first + begin;
      float* u = scratch;
      if (is_first) {
        push->Assign(count, weight, u);
      } else {
        u = pending->data() + at;
        push->Accumulate(count, weight, u);
      }
      for (size_t s = 0; s < state.size(); ++s) state[s] = (*target.states)[s].data() + at;
      target.rule->Apply(update, u, block.in + begin, block.out + begin, state.data(), count);
    }
  });
}

void ApplySent(const Update& update, float weight, SelectedReader* push, const UpdateRule& rule,
               BlockStore* store) {
  TESSERA_CHECK(rule.keeps_where_zero() && rule.state_count() == 0);
  int64_t places[kSentEntries];
  float u[kSentEntries];
  float w[kSentEntries];
  for (int i = 0; i < store->block_count(); ++i) {
    const int64_t begin = store->offset(i);
    const int64_t end = begin + store->block(i).size();
    // The reader says where its next entry is, so that blocks without any are neither copied nor touched.
    const std::optional<int64_t> next = push->NextPlace();
    if (!next.has_value()) return;
    if (*next >= end) continue;
    float* const values = store->BeginEdit(i);
    while (const int64_t count = push->Take(end, kSentEntries, weight, places, u)) {
      for (int64_t k = 0; k < count; ++k) w[k] = values[places[k] - begin];
      rule.Apply(update, u, w, w, nullptr, count);
      for (int64_t k = 0; k < count; ++k) values[places[k] - begin] = w[k];
    }
  }
}

}  // namespace tessera
