// Shard: updates, from the first fold to the commit.
#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "common/checkpoint/manifest.h"
#include "common/codec/selective_codec.h"
#include "common/codec/update_reader.h"
#include "server/shard/shard.h"
#include "server/shard/forms/update_run.h"

namespace tessera {
namespace {

// What workers say may be wrong, but a checkpoint of it has to be read again.
uint64_t SavedSum(uint64_t a, uint64_t b) {
  return b < kSavedCountEnd - 1 && a < kSavedCountEnd - 1 - b ? a + b : kSavedCountEnd - 1;
}

}  // namespace

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
  form_->Commit(BeginCommit(scale));
  if (records_) RecordCommit(now);
  form_->OnChange();
}

void Shard::CountStaleness(Version base) {
  const uint64_t staleness = counters_.version.value() - base.value();
  ++counters_.staleness[std::min<uint64_t>(staleness, counters_.staleness.size() - 1)];
  counters_.staleness_sum = SavedSum(counters_.staleness_sum, staleness);
  counters_.staleness_max = std::max(counters_.staleness_max, staleness);
}

}  // namespace tessera
