// The explorer of Slim-DP: entries outside the core, drawn anew for every worker and exchange.
//
// Sun, Chen, Bian, Liu, Liu: Slim-DP, AAAI 2018 (arXiv 1709.09393).
//
// Sender and receiver both draw it, so that no key of it moves. Of the m entries of a server outside
// the core, counted in ascending order, k are drawn without replacement (Floyd):
//   for i = 0 .. k-1, with j = m - k + i:
//     t = floor(r (j + 1) / 2^64), r being words 0 and 1 (0 low) of
//         Philox(seed, kExplorer, exchange mod 2^32 | rank << 32 | shard << 48, i / 2)
//         where i is even, else words 2 and 3
//     t is drawn, or j where t has been drawn before
// Where k is more than half of m, those that are left out are drawn instead, in the same way.
#ifndef TESSERA_COMMON_KEYSET_EXPLORER_H_
#define TESSERA_COMMON_KEYSET_EXPLORER_H_

#include <cstdint>

#include "common/base/ids.h"
#include "common/keyset/entry_set.h"

namespace tessera {

// Whose explorer: no two of a job have a random number in common.
struct ExplorerPlace {
  uint64_t seed = 0;  // the job's
  Rank rank;          // below 2^16
  Exchange exchange;
  ShardId shard;  // below 2^8
};

// `count` of the entries that are not in `core`, which must have that many. The set has the core's
// size.
EntrySet DrawExplorer(const ExplorerPlace& place, const EntrySet& core, int64_t count);

}  // namespace tessera

#endif  // TESSERA_COMMON_KEYSET_EXPLORER_H_
