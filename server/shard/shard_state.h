// All that a shard is at one moment. Four classes know it, one for each thing that is done with a shard:
//
//   Shard           leads: accepts pushes, folds them, answers reads
//   ShardRecorder   tells a standby what the leader has done (log/)
//   ShardFollower   does that again, in the standby (log/)
//   ReplicaCopying  fills it from another replica's
#ifndef TESSERA_SERVER_SHARD_SHARD_STATE_H_
#define TESSERA_SERVER_SHARD_SHARD_STATE_H_

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/base/ids.h"
#include "common/consistency/policy.h"
#include "common/rule/rule.h"
#include "common/rule/schedule.h"
#include "server/shard/block_store.h"
#include "server/shard/copy_orders.h"
#include "server/shard/forms/exchange_form.h"
#include "server/shard/push_stage.h"
#include "server/shard/read_result.h"
#include "server/shard/shard_counters.h"
#include "server/shard/shard_members.h"
#include "server/shard/shard_memory.h"
#include "server/shard/shard_options.h"
#include "server/shard/shard_traits.h"

namespace tessera {

// The shard's thread. Neither moved nor copied: its parts know each other.
struct ShardState {
  explicit ShardState(ShardOptions options);
  ShardState(const ShardState&) = delete;
  ShardState& operator=(const ShardState&) = delete;

  // Pushes are summed, each of all entries, and all members make the same exchange together: a standby is told of
  // folds and of the sum.
  bool CombinesPushes() const;
  // Another one of the same options is the same: nothing was loaded, planned or committed.
  bool IsAsMade() const;
  // A push is folded into the update that is collected: the policy says how, and it is counted.
  Verdict BeginFold(const PushFacts& push, bool has_base);
  // The update that is being committed, and its examples, which count from now on.
  Update BeginCommit(float scale);
  ReadResult ReadNow();

  const ShardTraits traits;
  const bool is_replica;  // every server holds all entries
  const std::unique_ptr<ConsistencyPolicy> policy;
  const std::unique_ptr<UpdateRule> rule;
  const RateSchedule schedule;
  const ShardLimits limits;

  BlockStore store;
  ShardMembers members;
  PushStage stage;
  std::unique_ptr<ExchangeForm> form;
  CopyOrders copies;
  int64_t open_folds = 0;         // pushes folded since the last commit
  uint64_t pending_examples = 0;  // rows behind them
  bool is_loaded = false;
  absl::Status initial;    // whether the initial values could be read
  ShardCounters counters;  // but for what its parts count
};

}  // namespace tessera

#endif  // TESSERA_SERVER_SHARD_SHARD_STATE_H_
