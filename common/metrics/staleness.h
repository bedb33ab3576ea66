// How late pushes were applied, over all servers of a job.
#ifndef TESSERA_COMMON_METRICS_STALENESS_H_
#define TESSERA_COMMON_METRICS_STALENESS_H_

#include <cstdint>
#include <vector>

#include "proto/status.pb.h"

namespace tessera {

// The number of entries in a server's histogram; the last one also counts everything that is later.
constexpr size_t kStalenessEntries = 65;

struct Staleness {
  // The number of pushes, each counted by every server.
  uint64_t pushes = 0;
  uint64_t sum = 0;
  uint64_t max = 0;
  // Entry i counts the pushes that were i versions late; the last entry is not 0. At most
  // kStalenessEntries.
  std::vector<uint64_t> histogram;

  // The mean staleness; 0 without pushes.
  double mean() const { return pushes == 0 ? 0 : static_cast<double>(sum) / pushes; }
};

// The staleness that the servers last told.
Staleness StalenessOf(const v1::JobStatus& status);

}  // namespace tessera

#endif  // TESSERA_COMMON_METRICS_STALENESS_H_
