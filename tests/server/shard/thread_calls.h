// What tests ask of a shard behind its thread, as the services and the link to the coordinator ask it.
#ifndef TESSERA_TESTS_SERVER_SHARD_THREAD_CALLS_H_
#define TESSERA_TESTS_SERVER_SHARD_THREAD_CALLS_H_

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "common/base/steady_clock.h"
#include "server/shard/shard_thread.h"

namespace tessera {

inline void Reserve(ShardThread& shard, MemberId member, int64_t bytes,
                    std::function<void(absl::Status)> granted) {
  shard.Ask([member, bytes](ServedShard& served,
                            auto done) { served.Reserve(member, bytes, std::move(done)); },
            std::move(granted));
}

inline void Accept(ShardThread& shard, ReceivedPush push,
                   std::function<void(absl::StatusOr<PushAccepted>)> accepted) {
  shard.Ask(
      [push = std::move(push)](ServedShard& served, auto done) mutable {
        served.Accept(std::move(push), std::move(done));
      },
      std::move(accepted));
}

inline uint64_t Read(ShardThread& shard, MemberId member, Exchange after, IdleNotice word,
                     std::function<void(absl::StatusOr<ReadResult>)> done) {
  return shard.Read<ReadResult>(
      member, after, word, [member, after](Shard& s) { return s.Read(member, after); },
      std::move(done));
}

inline void ReadOutside(ShardThread& shard, MemberId member, Exchange after, IdleNotice word,
                        std::function<void(absl::StatusOr<ReadResult>)> read) {
  shard.Ask(
      [member, after, word](ServedShard& served, auto done) {
        served.ReadOutside(member, after, word, SteadyNow(), std::move(done));
      },
      std::move(read));
}

// `applied`, which may be nullptr, hears of the members that were ever removed.
inline void SetPlan(ShardThread& shard, const Plan& plan,
                    std::function<void(std::vector<Shard::Removed>)> applied = nullptr) {
  shard.PostOfPlan([plan, applied = std::move(applied)](ServedShard& served) {
    std::vector<Shard::Removed> removed = served.SetPlan(plan);
    if (applied != nullptr) applied(std::move(removed));
  });
}

inline void SetCoreListener(ShardThread& shard, std::function<void(const CoreReport&)> listener) {
  shard.Post([listener = std::move(listener)](ServedShard& served) mutable {
    served.SetCoreListener(std::move(listener));
  });
}

inline void AskCore(ShardThread& shard, const CoreQuestion& question) {
  shard.PostOfPlan([question](ServedShard& served) { served.AskCore(question); });
}

}  // namespace tessera

#endif  // TESSERA_TESTS_SERVER_SHARD_THREAD_CALLS_H_
