// A member of a simulated job that makes any calls in any order, with numbers that are right or not, and then ends
// without a word, or leaves. It costs itself only: the job's other workers know nothing of it, and must end as if it
// had been lost. tests/e2e/member_calls_test.py does the same to real processes.
#ifndef TESSERA_TESTS_SIM_SIM_ROGUE_H_
#define TESSERA_TESTS_SIM_SIM_ROGUE_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/ids.h"
#include "common/layout/parameters.h"
#include "common/layout/shard_map.h"
#include "tests/sim/checker.h"
#include "tests/sim/dice.h"
#include "tests/sim/model_entries.h"
#include "tests/sim/sim_coordinator.h"
#include "tests/sim/faulty_network.h"
#include "tests/sim/sim_server.h"

namespace tessera {

class SimRogue {
 public:
  struct Options {
    uint64_t seed = 0;  // of updates, as the checker knows them
    uint64_t rows = 1;
    int kind = 0;
    // Pushes weigh by the examples that they say: these are then few, so that sums stay exact.
    bool by_examples = false;
    int calls = 0;
    const ModelShape* shape = nullptr;  // outlives it
    std::vector<ShardSlices> slices;
    uint64_t layout_hash = 0;
    std::vector<ShardDoor*> doors;
  };
  // The pointers outlive it. Begins to join at once.
  SimRogue(FaultyNetwork* network, SimCoordinator* coordinator, Checker* checker, Options options);

  NodeId node() const { return node_; }
  bool is_over() const { return !network_->IsAlive(node_); }
  // The calls that it made once it was a member.
  int calls_made() const { return calls_made_; }
  // Of these, pushes that a shard took.
  int pushes_taken() const { return pushes_taken_; }
  // "push renew pull ...": for whoever looks at a run that broke.
  const std::string& made() const { return made_; }

 private:
  void Join();
  // The next call, or the end.
  void Act();
  // Right most of the time, next to right, or odd.
  uint64_t Number(uint64_t right);
  v1::Progress DrawProgress();
  // A request to the coordinator, whatever comes of it.
  template <typename Reply>
  void Ask(std::function<absl::StatusOr<Reply>(Coordinator&, absl::Time)> request) {
    coordinator_->Ask<Reply>(node_, std::move(request),
                             [](std::optional<absl::StatusOr<Reply>>) {});
  }
  // A request to a shard, under a generation that is right or not; `ask` has the server and answers.
  template <typename Reply>
  void Call(size_t server,
            std::function<void(SimServer*, std::function<void(absl::StatusOr<Reply>)>)> ask,
            std::function<void(const absl::StatusOr<Reply>&)> done);
  void JoinAgain();
  void Renew();
  void BeginTraining();
  void BeginEpoch();
  void Evaluate();
  void Saved();
  void Leave();
  // One push to one shard.
  void Push(size_t server, Exchange exchange, bool is_right);
  void PushSome();
  // What a worker does: the next exchange, to all shards.
  void PushAll();
  void Pull();
  void ReadOutside();

  FaultyNetwork* const network_;
  SimCoordinator* const coordinator_;
  Checker* const checker_;
  const Options options_;
  const NodeId node_;
  const EntryNumbers numbers_;
  uint64_t life_ = kFirstRogueLife;
  MemberId member_;
  Generation generation_;
  Exchange exchange_;
  std::vector<Version> bases_;
  uint64_t rest_ = 0;
  int calls_made_ = 0;
  int pushes_taken_ = 0;
  std::string made_;
};

}  // namespace tessera

#endif  // TESSERA_TESTS_SIM_SIM_ROGUE_H_
