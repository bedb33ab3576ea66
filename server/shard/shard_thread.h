// The thread that owns a shard, and the door through which all others reach it.
//
// Calls from any thread become events in one queue; answers come back through the callbacks, on the
// shard's thread, which must not block: they start sends and return. A reader that must wait is an
// entry in a list.
#ifndef TESSERA_SERVER_SHARD_SHARD_THREAD_H_
#define TESSERA_SERVER_SHARD_SHARD_THREAD_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "common/base/wakeup.h"
#include "server/shard/log_sink.h"
#include "server/shard/served_shard.h"
#include "server/shard/shard.h"

namespace tessera {

class ShardThread {
 public:
  explicit ShardThread(std::unique_ptr<Shard> shard);
  // Answers what is queued with kCancelled and joins.
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
  // Another shard of the same layout takes this one's place. Whoever waits here is answered with
  // kFailedPrecondition. `make` is called on the shard's thread; for a moment both are there. Where it
  // fails the old one stays.
  using MakeShard = std::function<absl::StatusOr<std::unique_ptr<Shard>>()>;
  void Replace(MakeShard make, std::function<void(absl::Status)> done);

  // Constant after construction.
  const ModelShape& shape() const { return shape_; }
  const ShardSlices& slices() const { return slices_; }
  ShardId shard_id() const { return slices_.shard; }
  uint64_t layout_hash() const { return layout_hash_; }
  uint64_t seed() const { return seed_; }
  const CodecChoice& codecs() const { return codecs_; }
  const CodedForms& dense_forms() const { return dense_forms_; }
  bool trains_subnets() const { return trains_subnets_; }
  bool takes_whole() const { return takes_whole_; }
  bool moves_cores() const { return moves_cores_; }
  // A push that names another core is asked for its keys. Changes as cores are selected.
  bool KnowsCore(const CoreName& core) const;

 private:
  void Post(std::function<void()> event);
  // `ask` is called on the shard's thread until it answers.
  template <typename Result>
  uint64_t Park(MemberId member, Exchange after, RestWord word,
                std::function<absl::StatusOr<std::optional<Result>>()> ask,
                std::function<void(absl::StatusOr<Result>)> done);
  void Run();

  ServedShard served_;  // the thread's
  // What other threads ask for outlives every shard that is restored in the place of another.
  const ModelShape shape_;
  const ShardSlices slices_;
  const uint64_t layout_hash_;
  const uint64_t seed_;
  const CodecChoice codecs_;
  const CodedForms dense_forms_;
  const bool trains_subnets_;
  const bool takes_whole_;
  const bool moves_cores_;
  mutable absl::Mutex names_mutex_;
  const CoreExchange* names_ ABSL_GUARDED_BY(names_mutex_);  // for Knows; the shard's

  absl::Mutex mutex_;
  std::vector<std::function<void()>> events_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  Wakeup wakeup_;  // after a change of either
  uint64_t next_read_ ABSL_GUARDED_BY(mutex_) = 1;
  std::thread thread_;
};

}  // namespace tessera

#endif  // TESSERA_SERVER_SHARD_SHARD_THREAD_H_
