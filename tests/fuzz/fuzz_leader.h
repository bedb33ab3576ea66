// A shard that leads, workers that push to it as they should, and its log: what streams to standbys are made
// of.
#ifndef TESSERA_TESTS_FUZZ_FUZZ_LEADER_H_
#define TESSERA_TESTS_FUZZ_FUZZ_LEADER_H_

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/core/core_agreement.h"
#include "server/rpc/log_queue.h"
#include "server/shard/log/log_sink.h"
#include "server/shard/served_shard.h"
#include "tests/fuzz/fuzz_job.h"

namespace tessera {

// The jobs of one server: it leads, and its standby would be on another.
const std::vector<const FuzzJob*>& LeadingJobs();

// What a Replicator does without a network: events go to the queue, and acknowledgements to the shard.
class FuzzLog final : public LogSink {
 public:
  FuzzLog(const FuzzJob& job, uint64_t term, const absl::Time* now);

  void Begin(bool copies) override { queue.Begin(copies, *now_); }
  void Add(uint64_t position, Version version, ShardEvent event) override {
    queue.Add(LogQueue::ToEntry(position, version, std::move(event)), *now_);
  }
  void OnInSync() override {
    if (!queue.broken()) queue.SetInSync();
  }
  void Break(const std::string& why) override { queue.Break(why); }

  LogQueue queue;

 private:
  const absl::Time* const now_;
};

class FuzzLeader {
 public:
  explicit FuzzLeader(const FuzzJob& job) : FuzzLeader(job, job.MakeShard()) {}
  // One that was followed, for example.
  FuzzLeader(const FuzzJob& job, std::unique_ptr<Shard> shard);

  ServedShard& served() { return served_; }
  // One that joins begins with an exchange that the shard has promised it; the first two with the first.
  void AddMember();
  // The `i`th of the plan.
  void RemoveMember(size_t i);
  // What the member would push next.
  Exchange NextOf(MemberId member) const;
  // A member's next push, as a worker would make it after its last pull, of values that all are `value`. False: it
  // makes none now, and `done` is not called.
  bool Push(MemberId member, float value, std::function<void(absl::StatusOr<PushAccepted>)> done);
  // Until there is no more to be done. Questions about cores are asked as the coordinator would.
  void Work(absl::Time now);

 private:
  const FuzzJob& job_;
  ServedShard served_;
  std::optional<CoreAgreement> agreement_;
  std::map<MemberId, Exchange> pushed_;
  uint64_t last_member_ = 0;
};

}  // namespace tessera

#endif  // TESSERA_TESTS_FUZZ_FUZZ_LEADER_H_
