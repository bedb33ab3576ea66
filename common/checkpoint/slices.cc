#include "common/checkpoint/slices.h"

#include <algorithm>

namespace tessera {

std::vector<SavedRows> SavedRowsOf(int64_t rows, const Owners& owners, int64_t row_begin,
                                   int64_t row_end) {
  std::vector<SavedRows> runs;
  // Rows that one server owns today may lie in the files of several that were saved, and a run ends with its file.
  for (int64_t shard = owners.begin; shard < owners.end && row_begin < row_end; ++shard) {
    const ShardRows owned = RowsOf(rows, shard, owners);
    const int64_t end = std::min(row_end, owned.end);
    if (row_begin < owned.begin || row_begin >= end) continue;
    runs.push_back({shard, row_begin - owned.begin, end - row_begin});
    row_begin = end;
  }
  return runs;
}

CheckpointShard CountersFor(const std::vector<CheckpointShard>& saved, int64_t shard,
                            int64_t shard_count) {
  // With another number of servers than saved, no server's counters fit one of today's: sums are distributed so that
  // each saved shard is counted once, and the version is the largest of all.
  if (static_cast<int64_t>(saved.size()) == shard_count) return saved[static_cast<size_t>(shard)];
  CheckpointShard counters;
  if (!saved.empty()) counters.examples = saved[0].examples;
  for (int64_t s = 0; s < static_cast<int64_t>(saved.size()); ++s) {
    counters.version = std::max(counters.version, saved[s].version);
    counters.examples = std::min(counters.examples, saved[s].examples);
    // Each saved shard falls to exactly one of today's servers.
    if (s % shard_count != shard) continue;
    counters.pushes += saved[s].pushes;
    counters.staleness_sum += saved[s].staleness_sum;
    counters.staleness_max = std::max(counters.staleness_max, saved[s].staleness_max);
    // Histograms may differ in length, as zeros at the end are not written.
    if (counters.staleness.size() < saved[s].staleness.size()) {
      counters.staleness.resize(saved[s].staleness.size());
    }
    for (size_t i = 0; i < saved[s].staleness.size(); ++i) {
      counters.staleness[i] += saved[s].staleness[i];
    }
  }
  return counters;
}

}  // namespace tessera
