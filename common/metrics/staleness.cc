#include "common/metrics/staleness.h"

#include <algorithm>

namespace tessera {

Staleness StalenessOf(const v1::JobStatus& status) {
  Staleness result;
  result.histogram.resize(kStalenessEntries);
  for (const v1::ServerStatus& server : status.servers()) {
    const v1::ServerCounters& counters = server.counters();
    for (int i = 0; i < counters.staleness_histogram_size(); ++i) {
      // The last entry counts its staleness and all beyond, so a longer histogram of another build ends there.
      const uint64_t count = counters.staleness_histogram(i);
      result.histogram[std::min<size_t>(i, kStalenessEntries - 1)] += count;
      result.pushes += count;
    }
    // Each server counts its own pushes, so sums add up, while the largest is that of any.
    result.sum += counters.staleness_sum();
    result.max = std::max<uint64_t>(result.max, counters.staleness_max());
  }
  // A job without stale pushes has one entry, however long the servers' histograms are.
  while (!result.histogram.empty() && result.histogram.back() == 0) result.histogram.pop_back();
  return result;
}

}  // namespace tessera
