// The thread that owns a shard, and the door through which all others reach it.
//
// Calls from any thread become events in one queue; answers come back through the callbacks, on the
// shard's thread, which must not block: they start sends and return. A reader that must wait is an
// entry in a list.
//
// A shard that is to be made, or read from a checkpoint, takes its place here once it is there: that may take
// longer than a lease, and who hears nothing from this thread takes the server for lost.
#ifndef TESSERA_SERVER_SHARD_SHARD_THREAD_H_
#define TESSERA_SERVER_SHARD_SHARD_THREAD_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "common/base/wakeup.h"
#include "server/shard/served_shard.h"
#include "server/shard/shard.h"
#include "server/shard/shard_traits.h"

namespace tessera {

class ShardThread {
 public:
  explicit ShardThread(std::unique_ptr<Shard> shard);
  // Makes a thread without a shard, which waits, as after AwaitReplacement, for a Replace with number 0.
  explicit ShardThread(ShardTraits traits);
  // Answers what is queued with kCancelled and joins; what waits for a replacement is dropped.
  ~ShardThread();

  // --- what others ask of the shard; `served` is the shard's thread's, and nobody may keep it ---

  // Runs `event` after all that was posted before. Where a replacement is awaited the event waits for it.
  void Post(absl::AnyInvocable<void(ServedShard& served)> event);
  // Like Post, for what the coordinator says of the present plan: where another replacement is awaited before `event`
  // has run, it is dropped.
  void PostOfPlan(absl::AnyInvocable<void(ServedShard& served)> event);
  // A question of the data plane: calls ask(served, done), or, where a replacement is awaited, done(why) at once.
  // `done` takes a Status, or a StatusOr.
  template <typename Question, typename Done>
  void Ask(Question ask, Done done) {
    Add({[this, ask = std::move(ask), done = std::move(done)]() mutable {
           if (!refusal_.ok()) return done(refusal_);
           ask(*served_, std::move(done));
         },
         Event::When::kAtOnce});
  }
  // Calls ask(shard) until it answers, and `done` with the answer; with kFailedPrecondition when `member` is, or
  // becomes, no member. Returns a number for CancelRead. `word`: see Shard::Rest. Refused as Ask's questions are.
  template <typename Result>
  uint64_t Read(MemberId member, Exchange after, IdleNotice word,
                std::function<absl::StatusOr<std::optional<Result>>(Shard& shard)> ask,
                std::function<void(absl::StatusOr<Result>)> done) {
    const uint64_t id = next_read_.fetch_add(1, std::memory_order_relaxed);
    Ask(
        [id, member, after, word, ask = std::move(ask)](ServedShard& served, auto answer) mutable {
          served.Read<Result>(
              id, member, after, word,
              [&served, ask = std::move(ask)] { return ask(served.shard()); }, std::move(answer));
        },
        std::move(done));
    return id;
  }
  // Forgets a waiting read, whose client has gone; its callback gets kCancelled.
  void CancelRead(uint64_t read);
  // Gives a place back that ServedShard::Reserve has granted, and no Accept has used: also while a replacement is
  // awaited, as the present shard goes on where none comes.
  void Release(MemberId member, int64_t bytes);

  // Counters, and for whom the shard waits.
  struct View {
    ShardCounters counters;
    std::vector<MemberId> waits_for;
    uint64_t parked_reads = 0;
    int64_t reserved_bytes = 0;  // of pushes that are arriving
    uint64_t parameters_hash = 0;
    // While a core is being selected.
    std::optional<CoreReport> core_report;
  };
  // The hash reads every parameter: ask for it rarely.
  void Inspect(bool with_hash, std::function<void(View)> done);

  // --- another shard in its place ---

  // Another shard is to take this one's place. Until Replace with the same number
  //   whoever waits or asks on the data plane is answered with `why`
  //   Inspect is answered at once, with what was refused or sent again and nothing else: this server lives, and has
  //   no parameters to speak of
  //   nothing is folded
  //   the rest of the control plane waits
  // Numbers grow; one that comes before the last one's Replace makes that void, with plans, proposals, orders and
  // questions that wait.
  void AwaitReplacement(uint64_t number, const absl::Status& why);
  // `shard`, of the same layout, takes this one's place, and `done` is told. Where it is an error the old one
  // stays, if there is one. Nothing happens where the number is void.
  void Replace(uint64_t number, absl::StatusOr<std::unique_ptr<Shard>> shard,
               std::function<void(absl::Status)> done);

  // Constant after construction.
  const ShardTraits& traits() const { return traits_; }
  // A push that names another core is asked for its keys. Changes as cores are selected.
  bool WantsKeysOf(const CoreName& core) const;

 private:
  struct Event {
    // Where a replacement is awaited.
    enum class When { kAtOnce, kAfterwards, kAfterwardsOfPlan };
    absl::AnyInvocable<void()> run;
    When when = When::kAtOnce;
  };

  void Add(Event event);
  void Run();
  void Place(std::unique_ptr<Shard> shard);

  // The thread's.
  std::unique_ptr<ServedShard> served_;  // nullptr: there was none yet
  absl::Status refusal_;                 // why nobody is answered, while a replacement is awaited
  uint64_t awaited_ = 0;  // the replacement's number, the last one's where none is awaited
  std::vector<Event> waiting_;

  // What other threads ask for outlives every shard that is restored in the place of another.
  const ShardTraits traits_;
  mutable absl::Mutex names_mutex_;
  const CoreExchange* names_ ABSL_GUARDED_BY(names_mutex_) =
      nullptr;  // for WantsKeysOf; the shard's

  absl::Mutex mutex_;
  std::vector<Event> events_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  Wakeup wakeup_;  // after a change of either
  std::atomic<uint64_t> next_read_{1};
  std::thread thread_;
};

}  // namespace tessera

#endif  // TESSERA_SERVER_SHARD_SHARD_THREAD_H_
