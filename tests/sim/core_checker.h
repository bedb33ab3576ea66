// What the cores and explorers of a job must be, by their definition alone (docs/methods.md#slim_dp): every
// entry of the model is weighed, and all of them are sorted.
#ifndef TESSERA_TESTS_SIM_CORE_CHECKER_H_
#define TESSERA_TESTS_SIM_CORE_CHECKER_H_

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "common/base/ids.h"
#include "common/keyset/core_share.h"

namespace tessera {

class CoreChecker {
 public:
  CoreChecker(CoreShare share, uint64_t seed, int shards);

  // By place, the entry's number in the model.
  void SetNumbers(ShardId shard, const std::vector<int64_t>& numbers) {
    numbers_[shard.value()] = numbers;
  }

  // The shard begins to select core `number` out of its values w; g is what pushes of all entries have
  // added to them since the last selection, empty where none came. A standby that takes over before all have
  // selected it may do so of other values: the last word counts.
  void OnSelection(ShardId shard, uint64_t number, const std::vector<float>& w,
                   const std::vector<float>& g);
  // Of a core with a number between these, neither of them. Going back to a checkpoint skips numbers.
  bool HasSelectedBetween(ShardId shard, uint64_t after, uint64_t before) const;
  // Places in the shard's dense order, ascending; nullopt: not all shards have begun to select it.
  std::optional<std::vector<int64_t>> CoreOn(ShardId shard, uint64_t number);
  // Those of `core` and the explorer of this exchange.
  std::vector<int64_t> EntriesOn(ShardId shard, Rank rank, Exchange exchange,
                                 const std::vector<int64_t>& core) const;

 private:
  struct Values {
    std::vector<float> w;
    std::vector<float> g;
  };
  // By shard, what core `number` is selected from.
  using Selection = std::map<uint64_t, Values>;

  int64_t entries() const;
  std::vector<int64_t> Select(const Selection& from) const;

  const CoreShare share_;
  const uint64_t seed_;
  std::vector<std::vector<int64_t>> numbers_;  // by shard
  std::map<uint64_t, Selection> selections_;
  std::map<uint64_t, std::set<int64_t>> cores_;  // by number, entries of the model
};

}  // namespace tessera

#endif  // TESSERA_TESTS_SIM_CORE_CHECKER_H_
