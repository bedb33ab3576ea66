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

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "common/base/wakeup.h"
#include "server/shard/log_sink.h"
#include "server/shard/served_shard.h"
#include "server/shard/shard.h"
#include "server/shard/shard_traits.h"

namespace tessera {

class ShardThread {
 public:
  explicit ShardThread(std::unique_ptr<Shard> shard);
  // Without a shard until Replace with number 0: as after AwaitReplacement.
  explicit ShardThread(ShardTraits traits);
  // Answers what is queued with kCancelled and joins; what waits for a replacement is dropped.
  ~ShardThread();

  // --- data plane ---

  // Asks for a place for a push of `bytes` that has begun to arrive; `granted` is called once there
  // is one, with kFailedPrecondition if the member was removed meanwhile. A granted place is given
  // back by an Accept that stages the push, else (a duplicate, an error, no end) by the caller's
  // Release.
  void Reserve(MemberId member, int64_t bytes, std::function<void(absl::Status)> granted);
  void Release(MemberId member, int64_t bytes);
  void Accept(ReceivedPush push, std::function<void(absl::StatusOr<PushAccepted>)> done);
  // `done` is called when the member may read; with kFailedPrecondition when it is, or becomes, no
  // member. Returns a number for CancelRead. `word`: see Shard::Rest.
  uint64_t Read(MemberId member, Exchange after, RestWord word,
                std::function<void(absl::StatusOr<ReadResult>)> done);
  // As Read, for this member's subnet in `round` (Shard::ReadSubnet).
  uint64_t ReadSubnet(MemberId member, Exchange round, RestWord word,
                      std::function<void(absl::StatusOr<SubnetReadResult>)> done);
  // As Read, for the entries of this member's exchange `after`, and for a core's keys
  // (Shard::ReadSparse, ReadCore).
  uint64_t ReadSparse(MemberId member, Exchange after, const CoreName& core, RestWord word,
                      std::function<void(absl::StatusOr<SparseReadResult>)> done);
  uint64_t ReadCore(MemberId member, uint64_t number,
                    std::function<void(absl::StatusOr<std::shared_ptr<const Core>>)> done);
  // Forgets a waiting read, whose client has gone; its callback gets kCancelled.
  void CancelRead(uint64_t read);
  void ReadOutside(MemberId member, Exchange after, RestWord word,
                   std::function<void(absl::StatusOr<ReadResult>)> done);

  // --- replicas: as Shard's ---

  void AwaitCopy();
  void WantsCopy(std::function<void(bool)> done);
  void CopyReplica(std::function<void(absl::StatusOr<ReplicaCopy>)> done);
  void TakeCopy(ReplicaTable table, std::vector<float> values,
                std::function<void(absl::Status)> done);

  // --- control plane ---

  void SetPlan(Plan plan, std::function<void(std::vector<Shard::Removed>)> done);
  void Propose(uint64_t proposal, Exchange first, std::function<void(Exchange)> done);
  void Withdraw(uint64_t proposal);
  // Where exchanges move a core: `listener` hears of every report, from now on and on the shard's
  // thread. It must not block.
  void SetCoreListener(std::function<void(const CoreReport&)> listener);
  void AskCore(const CoreQuestion& question);
  // --- a standby (standby_gate.h) ---

  // Events go to `sink` from now on, and answers wait for it; nullptr: to nobody.
  void SetStandby(std::shared_ptr<LogSink> sink);
  void OnAcknowledged(std::shared_ptr<LogSink> from, uint64_t position);
  // As StandbyGate's.
  void Abdicate(const absl::Status& why);

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

  // --- checkpoints ---

  // `taken` is called on the shard's thread when the copy is due; not at all where another order comes
  // before that. Shard::Order's errors, at once.
  void Order(const CopyOrder& order, std::function<void(absl::StatusOr<ShardCopy>)> taken);
  // Another shard is to take this one's place. Until Replace with the same number
  //   whoever waits or asks on the data plane is answered with `why`, a replica that copies with kUnavailable
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
  const ModelShape& shape() const { return traits_.shape; }
  const ShardSlices& slices() const { return traits_.slices; }
  ShardId shard_id() const { return traits_.slices.shard; }
  uint64_t layout_hash() const { return traits_.layout_hash; }
  uint64_t seed() const { return traits_.seed; }
  const CodecChoice& codecs() const { return traits_.codecs; }
  const CodedForms& dense_forms() const { return traits_.dense_forms; }
  bool trains_subnets() const { return traits_.trains_subnets; }
  bool takes_whole() const { return traits_.takes_whole; }
  bool moves_cores() const { return traits_.moves_cores; }
  const LayerParts* layer_parts() const { return traits_.layer_parts.get(); }
  // A push that names another core is asked for its keys. Changes as cores are selected.
  bool WantsKeysOf(const CoreName& core) const;

 private:
  struct Event {
    // Where a replacement is awaited.
    enum class When { kAtOnce, kAfterwards, kAfterwardsOfPlan };
    std::function<void()> run;
    When when = When::kAtOnce;
  };

  // Its own answer is Refusal(), where that is not OK.
  void Post(std::function<void()> event) { Post({std::move(event), Event::When::kAtOnce}); }
  // Waits for the replacement, where one is awaited.
  void PostInTurn(std::function<void()> event) {
    Post({std::move(event), Event::When::kAfterwards});
  }
  // So, and is void where another one is awaited before.
  void PostOfPlan(std::function<void()> event) {
    Post({std::move(event), Event::When::kAfterwardsOfPlan});
  }
  void Post(Event event);
  // `ask` is called on the shard's thread until it answers.
  template <typename Result>
  uint64_t Park(MemberId member, Exchange after, RestWord word,
                std::function<absl::StatusOr<std::optional<Result>>()> ask,
                std::function<void(absl::StatusOr<Result>)> done);
  void Run();
  void Place(std::unique_ptr<Shard> shard);
  // Why nobody is answered: a replacement is awaited.
  const absl::Status& Refusal() const { return refusal_; }

  // The thread's.
  std::unique_ptr<ServedShard> served_;  // nullptr: there was none yet
  absl::Status refusal_;
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
  uint64_t next_read_ ABSL_GUARDED_BY(mutex_) = 1;
  std::thread thread_;
};

}  // namespace tessera

#endif  // TESSERA_SERVER_SHARD_SHARD_THREAD_H_
