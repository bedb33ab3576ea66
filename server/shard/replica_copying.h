// How a server that holds the whole model comes to hold it in mid-run.
//
//   1. The joining server is added to the list of those that are pushed to. It keeps what comes.
//   2. Once every member has pushed to it, it copies another replica: values, and for every member the
//      last exchange that they contain (the table). A member makes an exchange only when all servers
//      have accepted the one before, so that what was not pushed here is in the copy. The table shows it;
//      if not, the copy is made again.
//   3. Kept pushes that the table contains are dropped, the others are folded.
//
// A member may be long in coming, as it makes no pushes during an evaluation. Where much is kept meanwhile, copies are
// made all the same, for what they allow to drop: what one replica has folded the copy of step 2 must
// contain.
//
// From then on it is like the others, but for the order in which pushes were added.
#ifndef TESSERA_SERVER_SHARD_REPLICA_COPYING_H_
#define TESSERA_SERVER_SHARD_REPLICA_COPYING_H_

#include <cstdint>
#include <functional>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/base/ids.h"
#include "server/shard/read_result.h"
#include "server/shard/received_push.h"
#include "server/shard/replica_table.h"
#include "server/shard/shard_state.h"

namespace tessera {

// A joining server may keep so much, whatever its limit for pushes that wait.
constexpr int64_t kKeptBytesLeast = int64_t{16} << 20;

// All that a replica holds, for one that joins.
struct ReplicaCopy {
  ReadResult read;
  ReplicaTable table;
};

// A shard's as a replica; of a shard that is a part of the model it does nothing, and awaits nothing. The shard's
// thread.
class ReplicaCopying {
 public:
  // `state` outlives it; advance(now) does one piece of work on it, as Shard::Advance.
  ReplicaCopying(ShardState* state, std::function<bool(absl::Time)> advance)
      : state_(*state), advance_(std::move(advance)) {}

  // --- the one that joins ---

  // This server has joined a running job: from now on pushes are kept, and nothing is folded or read, until TakeCopy.
  // No effect once there was one.
  void AwaitCopy() { awaits_copy_ = state_.is_replica && !copied_; }
  bool awaits_copy() const { return awaits_copy_; }
  // While a copy is awaited: nothing of the member has been pushed here. Its first push is kept in any case.
  bool IsUnheard(MemberId member) const;
  // kUnavailable: a copy is awaited, and what is kept has come to its limit.
  absl::Status CheckKept(const ReceivedPush& push) const;
  // Every member of the plan has pushed here, so that a copy made from now on has what was pushed before.
  bool HeardFromAll() const;
  // A copy is awaited and HeardFromAll, or so much is kept here by now that some of it should go, namely what any copy
  // contains.
  bool WantsCopy() const;
  // Values and table of another replica. Kept pushes that are in them are dropped, also where the copy will not do.
  //   kUnavailable      they lack pushes that did not come here, or the other one's plan is older: copy again
  //   kInvalidArgument  the size is not the shard's
  absl::Status TakeCopy(const ReplicaTable& table, absl::Span<const float> values);

  // --- the one that is copied ---

  // Folds all that was accepted, so that all replicas that were sent the same are the same.
  void FoldAccepted(absl::Time now);
  // All that was accepted, folded, and the table of it.
  //   kUnavailable      this one awaits a copy itself
  //   kInvalidArgument  it is no replica
  absl::StatusOr<ReplicaCopy> MakeCopy(absl::Time now);

 private:
  int64_t kept_bytes_max() const;
  void DropContained(const ReplicaTable& table);

  ShardState& state_;
  const std::function<bool(absl::Time)> advance_;
  bool awaits_copy_ = false;
  bool copied_ = false;
};

}  // namespace tessera

#endif  // TESSERA_SERVER_SHARD_REPLICA_COPYING_H_
