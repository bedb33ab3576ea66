// What must be true of every run, whatever the network does.
//
// Updates are integers that follow from (seed, member, exchange, entry), so the parameters of every
// shard are known to the bit from the history of what was folded: initial values (zeros) plus those
// updates, weighed as the method says, and no other. Where subnets are trained the updates are values,
// and every entry has that of the site that returned it last: the initial one where none did.
#ifndef TESSERA_TESTS_SIM_CHECKER_H_
#define TESSERA_TESTS_SIM_CHECKER_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "common/base/ids.h"
#include "common/consistency/plan.h"
#include "common/consistency/policy.h"
#include "common/keyset/core_share.h"
#include "common/keyset/sparse_keys.h"
#include "common/keyset/subnet.h"
#include "common/layout/shard_map.h"
#include "tests/sim/core_checker.h"
#include "tests/sim/subnet_entries.h"

namespace tessera {

// A whole run of them stays within a float's 24 bits.
int64_t UpdateEntry(uint64_t seed, MemberId member, Exchange exchange, int64_t entry);

class Checker {
 public:
  struct Options {
    uint64_t seed = 0;
    int shards = 1;
    // The same exchange is the same update for all.
    bool lockstep = true;
    // -1: the rule subtracts gradients. +1: it adds deltas.
    int sign = -1;
    // What is folded of a push that is tau versions late.
    std::function<float(uint64_t tau)> weight = [](uint64_t) { return 1.0f; };
    // Pushes count by their examples, relative to the first of their update.
    bool by_examples = false;
    // Updates are means, and the rule multiplies them by this.
    bool mean = true;
    float factor = 1;
    // Sums are exact unless the rule rounds in an order of its own.
    float tolerance = 0;
    // A read is at most so many exchanges ahead of the slowest member.
    std::optional<uint64_t> bound;
    // A read waits until the round of its exchange has closed.
    bool rounds = false;
    // Set: subnets of it are trained, in rounds. Outlives the checker.
    const SubnetEntries* subnets = nullptr;
    // Set: exchanges move a core and an explorer, under this seed of the job.
    std::optional<CoreShare> core;
    uint64_t job_seed = 0;
  };
  explicit Checker(Options options);

  // A policy for `shard` that tells the checker what `policy` decides.
  std::unique_ptr<ConsistencyPolicy> Recorded(ShardId shard, const ShardSlices& slices,
                                              std::unique_ptr<ConsistencyPolicy> policy);

  // --- events ---

  // The coordinator's word has reached the shard.
  void OnPlan(ShardId shard, const Plan& plan);
  void OnAccepted(ShardId shard, MemberId member);
  // A member was answered.
  void OnRead(ShardId shard, MemberId member, Exchange after, Version version,
              const std::vector<float>& values);
  // A member was answered how `place.round` is cut for it, with values if it had asked for that.
  void OnFetched(ShardId shard, MemberId member, const SubnetPlace& place, Version version,
                 const std::optional<std::vector<float>>& values);
  // Somebody who has made earlier rounds has its push of the open one folded. One that begins with it
  // may be ahead of others that evaluate.
  bool IsInRound(ShardId shard) const;
  // All values, as they are just now.
  void OnReadOutside(ShardId shard, MemberId member, Version version,
                     const std::vector<float>& values);
  void OnCounted(ShardId shard, Version version);
  // The shard has begun to select this core, of the values that it has just now.
  void OnSelection(ShardId shard, uint64_t number);
  // It has selected this one.
  void OnCore(ShardId shard, const Core& core);
  // What a member is about to push to the shard: `keys` nullptr: all entries.
  void OnKeys(ShardId shard, MemberId member, Rank rank, Exchange exchange, const SparseKeys* keys);
  // As OnRead, of these places, which are to be those of core `core` in exchange `after`.
  void OnSparseRead(ShardId shard, MemberId member, Rank rank, Exchange after, Version version,
                    uint64_t core, const EntrySet& entries, const std::vector<float>& values);
  void OnResting(ShardId shard, MemberId member, bool resting);
  // A worker has pulled from all shards after `exchange`.
  void OnReplica(MemberId member, Exchange exchange, const std::vector<float>& values);
  // Reads are parked: `waits_for`, an open promise and a time are all that the status can name.
  struct Reader {
    MemberId member;
    Exchange after;
  };
  void OnWaiting(ShardId shard, const std::vector<Reader>& readers,
                 const std::vector<MemberId>& waits_for, bool will_go_on);
  void OnAdmitted(MemberId member, Exchange first);
  void OnLiveMemberRefused(MemberId member, absl::string_view message);
  // The run is over; `lost` did not finish.
  void OnEnd(const std::set<MemberId>& lost, uint64_t partial_pushes);

  // The first thing that was wrong.
  const std::optional<std::string>& violation() const { return violation_; }
  void Violate(absl::string_view what);
  uint64_t commits() const;
  uint64_t partial_pushes() const;

 private:
  class RecordedPolicy;
  // What one shard must look like.
  struct Ledger {
    // Of parameters that all sites have: the sum of what they returned.
    std::map<int64_t, double> shared;  // by position
    ShardSlices slices;
    Plan plan;
    std::vector<float> parameters;
    std::vector<float> pending;
    double weights = 0;  // folded into pending, by examples
    uint64_t first_examples = 0;
    std::map<MemberId, Exchange> clocks;  // last exchange folded
    Exchange highest;                     // of all pushes folded
    Exchange round{1};                    // being collected
    std::set<MemberId> resting;
    std::vector<MemberId> folded;                     // into pending
    std::set<std::pair<MemberId, Exchange>> applied;  // ever
    std::map<Exchange, std::set<MemberId>> commits;   // under lockstep
    Exchange committed;                               // the last one
    uint64_t version = 0;
    // What pushes of all entries have changed since the last selection; empty: none came.
    std::vector<float> gradient;
    bool has_all = false;  // one of them is in pending
    // What members push: places, ascending; nullopt: all.
    std::map<std::pair<MemberId, Exchange>, std::optional<std::vector<int64_t>>> keys;
  };

  void OnFolded(ShardId shard, const PushFacts& push, const Verdict& verdict);
  void OnCommitted(ShardId shard, Exchange exchange);
  void AddUpdate(Ledger* ledger, const PushFacts& push, float weight);
  void ReplaceValues(Ledger* ledger, const PushFacts& push, absl::string_view where);
  void CheckRead(ShardId shard, MemberId member, Exchange after, Version version,
                 absl::string_view where);
  // `wanted`: where each value lies in the shard's dense order; nullptr: they are all.
  void CompareValues(const Ledger& ledger, const std::vector<float>& values,
                     const std::vector<int64_t>* wanted, absl::string_view where);
  // Those of core `core`, if all shards have one of this number.
  void CheckEntries(ShardId shard, Rank rank, Exchange exchange, uint64_t core,
                    const EntrySet& entries, absl::string_view where);
  void CheckGap(ShardId shard, MemberId reader, Exchange after);
  void CheckSameCommits(const std::set<MemberId>& lost);

  const Options options_;
  std::vector<Ledger> ledgers_;
  std::map<Exchange, std::vector<float>> replicas_;  // under lockstep
  // By round: how it is cut, as servers have said.
  std::map<uint64_t, std::map<MemberId, SubnetPlace>> cuts_;
  std::optional<CoreChecker> cores_;
  std::optional<std::string> violation_;
};

}  // namespace tessera

#endif  // TESSERA_TESTS_SIM_CHECKER_H_
