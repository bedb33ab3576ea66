// A small language for tests of a shard: models without a job file, pushes written as lists of
// numbers.
#ifndef TESSERA_TESTS_SERVER_SHARD_SHARD_FIXTURE_H_
#define TESSERA_TESTS_SERVER_SHARD_SHARD_FIXTURE_H_

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/ids.h"
#include "common/codec/payload.h"
#include "common/consistency/plan.h"
#include "common/layout/parameters.h"
#include "server/shard/shard.h"

namespace tessera {

// One matrix of zeros, so that sums of integers stay exact.
ModelShape ZeroMatrix(int64_t rows, int64_t columns);

// `values` as a received payload that owns its bytes.
Payload PayloadOf(const std::vector<float>& values);

std::vector<float> ValuesOf(const Snapshot& snapshot);

// Member and first exchange of each; ranks are the members' numbers.
Plan PlanOf(uint64_t generation, std::vector<std::pair<uint64_t, uint64_t>> members);

// Members 1 .. count from exchange 1 on.
Plan PlanOfFirst(int count);

// One shard and those who talk to it. Members are plain numbers here.
class ShardFixture {
 public:
  ShardFixture(ModelShape shape, std::unique_ptr<ConsistencyPolicy> policy,
               std::unique_ptr<UpdateRule> rule, int shard = 0, int shard_count = 1,
               uint64_t seed = 1);

  // A push that this shard would like, with the current version as base. Change a field to spoil
  // it.
  ReceivedPush Good(uint64_t member, uint64_t exchange, const std::vector<float>& values) const;
  // Accepts it; nothing is folded yet.
  absl::StatusOr<PushAccepted> Send(uint64_t member, uint64_t exchange,
                                    const std::vector<float>& values);
  // Accepts it and does all work that is due.
  absl::StatusOr<PushAccepted> Push(uint64_t member, uint64_t exchange,
                                    const std::vector<float>& values);
  // As Push, for a push that must be accepted as new.
  void MustPush(uint64_t member, uint64_t exchange, const std::vector<float>& values);
  // Does all work that is due; returns how much there was.
  int Settle();

  // The values a member reads after `exchange`; nullopt: it must wait.
  absl::StatusOr<std::optional<std::vector<float>>> Read(uint64_t member, uint64_t exchange);
  // What the shard is told the time is.
  absl::Time now = absl::UnixEpoch();

  std::vector<float> Values() { return ValuesOf(*shard.ReadNow().snapshot); }
  uint64_t version() const { return shard.counters().version.value(); }
  std::vector<uint64_t> WaitsFor() const;

  Shard shard;
};

}  // namespace tessera

#endif  // TESSERA_TESTS_SERVER_SHARD_SHARD_FIXTURE_H_
