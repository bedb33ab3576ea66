// A shard and those who wait for it: reads that may not be answered yet, pushes that want a place, and
// whoever is told only of what the standby has.
//
// ShardThread runs it on a thread, tests/sim on virtual time.
#ifndef TESSERA_SERVER_SHARD_SERVED_SHARD_H_
#define TESSERA_SERVER_SHARD_SERVED_SHARD_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/shard/log/standby_gate.h"
#include "server/shard/shard.h"

namespace tessera {

// One thread at a time. Nothing here blocks or reads a clock; callbacks may be called at once. What each
// event means is said in shard_thread.h. Call Work after every event, and until there is none.
class ServedShard {
 public:
  explicit ServedShard(std::unique_ptr<Shard> shard);

  const Shard& shard() const { return *shard_; }
  Shard& shard() { return *shard_; }

  // Does one piece of due work, and answers whom it can. `had_events`: something has happened since the
  // last call. Returns whether there was any work.
  bool Work(bool had_events, absl::Time now);

  // --- data plane ---

  void Reserve(MemberId member, int64_t bytes, std::function<void(absl::Status)> granted);
  void Accept(ReceivedPush push, std::function<void(absl::StatusOr<PushAccepted>)> done);
  // `ask` is called until it answers, `done` once the answer may be told.
  template <typename Result>
  void Read(uint64_t read, MemberId member, Exchange after, IdleNotice word,
            std::function<absl::StatusOr<std::optional<Result>>()> ask,
            std::function<void(absl::StatusOr<Result>)> done);
  void CancelRead(uint64_t read);
  void ReadOutside(MemberId member, Exchange after, IdleNotice word, absl::Time now,
                   std::function<void(absl::StatusOr<ReadResult>)> done);
  uint64_t parked_reads() const { return reads_.size(); }

  // --- control plane ---

  // Returns all members that were ever removed, so that an acknowledgement which got lost costs nothing:
  // ShardMembers::removed.
  std::vector<Shard::Removed> SetPlan(const Plan& plan);
  Exchange Propose(uint64_t proposal, Exchange first);
  void Withdraw(uint64_t proposal);
  void SetCoreListener(std::function<void(const CoreReport&)> listener);
  void AskCore(const CoreQuestion& question);
  // For the coordinator, while a core is being selected and the standby has what it is selected from.
  std::optional<CoreReport> core_report() const;

  // The standby, and what waits for it.
  StandbyGate& gate() { return gate_; }

  // --- checkpoints ---

  // Shard::Order's errors, at once.
  void Order(const CopyOrder& order, std::function<void(absl::StatusOr<ShardCopy>)> taken);
  // Another shard of the same layout takes this one's place, and counts on what happened to pushes here.
  void Replace(std::unique_ptr<Shard> shard);
  // Whoever waits is answered with `why`.
  void Refuse(const absl::Status& why);

 private:
  struct ParkedRead {
    uint64_t id = 0;
    // Answers unless it must still wait; returns whether it did.
    std::function<bool()> answer;
    std::function<void(absl::Status)> fail;
  };
  struct ParkedReserve {
    MemberId member;
    int64_t bytes = 0;
    std::function<void(absl::Status)> granted;
    int64_t pushes_before = 0;  // when it was last looked at
  };

  void Rest(MemberId member, Exchange after, IdleNotice word);
  void AnswerReads();
  void GrantReservations();
  void TakeCopy();
  void TellCoreReport();

  std::unique_ptr<Shard> shard_;
  StandbyGate gate_;
  std::vector<ParkedRead> reads_;
  std::vector<ParkedReserve> reservations_;
  std::function<void(const CoreReport&)> core_listener_;
  uint64_t core_reports_seen_ = 0;
  uint64_t core_reports_told_ = 0;
  std::function<void(absl::StatusOr<ShardCopy>)> copy_taken_;
};

template <typename Result>
void ServedShard::Read(uint64_t id, MemberId member, Exchange after, IdleNotice word,
                       std::function<absl::StatusOr<std::optional<Result>>()> ask,
                       std::function<void(absl::StatusOr<Result>)> done) {
  Rest(member, after, word);
  ParkedRead read;
  read.id = id;
  read.fail = done;
  read.answer = [this, member, after, ask = std::move(ask), done = std::move(done)] {
    absl::StatusOr<std::optional<Result>> result = ask();
    if (!result.ok()) {
      done(result.status());
      return true;
    }
    if (!result->has_value()) return false;
    gate_.SayTo(member, after, [done, answer = **std::move(result)](const absl::Status& status) {
      if (!status.ok()) return done(status);
      done(answer);
    });
    return true;
  };
  reads_.push_back(std::move(read));
}

}  // namespace tessera

#endif  // TESSERA_SERVER_SHARD_SERVED_SHARD_H_
