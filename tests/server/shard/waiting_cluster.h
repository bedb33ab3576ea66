// Whole clusters of shards for tests, under messages that overtake each other, joins, crashes, rests
// and words that come too late; all chance from one seed.
//
// Workers push an exchange to all shards and read from all, as a worker does; now and then each
// rests until all do. A run is wrong when some worker has not come to its end and no message is
// under way and no time set.
#ifndef TESSERA_TESTS_SERVER_SHARD_WAITING_CLUSTER_H_
#define TESSERA_TESTS_SERVER_SHARD_WAITING_CLUSTER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/time/time.h"
#include "common/consistency/policy.h"

namespace tessera {

constexpr uint64_t kNoBound = uint64_t{1} << 32;

struct ClusterOptions {
  // One for each shard.
  std::function<std::unique_ptr<ConsistencyPolicy>()> policy;
  // So many exchanges may a reader be ahead of the members that do not rest.
  uint64_t bound = kNoBound;
};

// What went wrong; empty: nothing.
//   "wait for ever: ..."
//   "member ... reads after ..."   beyond the bound
//   "an evaluation does not see all pushes", "a commit of nothing", "it does not end"
std::string RunCluster(uint64_t seed, const ClusterOptions& options);

}  // namespace tessera

#endif  // TESSERA_TESTS_SERVER_SHARD_WAITING_CLUSTER_H_
