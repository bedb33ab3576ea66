// A leading shard, its standby, and any acknowledgements: no crash, nobody is told anything because of an
// acknowledgement that cannot be, and as long as acknowledgements are true the standby has what was acknowledged.
//
//   input = job(1) (event(1) choices)*
#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "common/base/check.h"
#include "server/rpc/followed_shards.h"
#include "tests/fuzz/fuzz_input.h"
#include "tests/fuzz/fuzz_leader.h"

namespace tessera {
namespace {

// No clock that counts nanoseconds goes on for centuries.
constexpr uint64_t kPauseMaxMs = 1 << 24;

class Events {
 public:
  Events(const FuzzJob& job, FuzzInput* input)
      : job_(job), in_(*input), leader_(job), standbys_(OptionsOf(job)) {
    if (in_.Bit()) Feed();
    leader_.AddMember();
    leader_.AddMember();
  }

  void Run() {
    for (int events = 0; !in_.ended() && events < 300; ++events) One();
    CheckStandby();
    // Whatever was said, the shard goes on without a standby.
    Detach();
    leader_.Work(now_);
    TESSERA_CHECK(answered_ == asked_);
  }

 private:
  static FollowedShards::Options OptionsOf(const FuzzJob& job) {
    FollowedShards::Options options;
    options.job_digest = job.digest;
    options.layout_hash = job.facts.layout_hash;
    options.make_shard = [&job](ShardId) { return job.MakeShard(); };
    return options;
  }

  // Another standby, under another term.
  void Feed() {
    ++term_;
    if (log_ != nullptr) log_->queue.Break("it was ended");
    standbys_.Follow(ShardId(0), term_);
    while (standbys_.PrepareOne()) {
    }
    reader_ = std::make_unique<LogReader>(&standbys_);
    wire_.clear();
    acks_.clear();
    sent_ = 0;
    is_true_ = true;
    log_ = std::make_shared<FuzzLog>(job_, term_, &now_);
    leader_.served().gate().SetStandby(log_);
  }

  void Push() {
    const std::vector<PlanMember>& members = leader_.served().shard().plan().members;
    if (members.empty()) return;
    const MemberId member = members[in_.Below(members.size())].member;
    const Exchange exchange = leader_.NextOf(member);
    const float value = 0.5f * static_cast<float>(in_.Below(4));
    const bool was_asked = leader_.Push(
        member, value, [this, member, exchange](const absl::StatusOr<PushAccepted>& reply) {
          ++answered_;
          if (!reply.ok() || reply->need_keys) return;
          Exchange& last = acknowledged_[member];
          last = std::max(last, exchange);
        });
    asked_ += was_asked;
  }

  void Send() {
    if (log_ == nullptr) return;
    std::optional<LogQueue::Message> next = log_->queue.Next(1 + in_.Byte() * 4);
    if (!next.has_value()) return;
    for (const v1::LogEntry& entry : next->head.entries()) sent_ = entry.position();
    log_->queue.OnWritten(now_);
    wire_.push_back(*std::move(next));
  }

  void Arrive() {
    if (wire_.empty()) return;
    LogQueue::Message message = std::move(wire_.front());
    wire_.pop_front();
    // Whatever the leader sends, its standby can do.
    const absl::StatusOr<uint64_t> taken =
        reader_->Take(message.head, std::move(message.values), now_);
    if (!taken.ok()) std::fprintf(stderr, "the standby: %s\n", taken.status().ToString().c_str());
    TESSERA_CHECK(taken.ok());
    acks_.push_back(*taken);
  }

  // As Replicator does.
  void Acknowledge(uint64_t position) {
    if (log_ == nullptr || log_->queue.broken()) return;
    const uint64_t answered = answered_;
    const bool is_taken = log_->queue.OnAcknowledged(position, now_);
    if (is_taken) leader_.served().gate().OnAcknowledged(log_.get(), position);
    const bool cannot_be = position > sent_;
    TESSERA_CHECK(!cannot_be || (!is_taken && log_->queue.broken()));
    TESSERA_CHECK(is_taken || (answered_ == answered && !log_->queue.report().broken().empty()));
    leader_.Work(now_);
  }

  void Lie() {
    v1::LogAck ack;
    const absl::string_view piece = in_.Piece();
    if (!ack.ParseFromArray(piece.data(), static_cast<int>(piece.size()))) return;
    if (in_.Bit()) ack.set_position(in_.Count());
    is_true_ = false;
    Acknowledge(ack.position());
  }

  void TellTruth() {
    if (acks_.empty()) return;
    const uint64_t position = acks_.front();
    acks_.pop_front();
    Acknowledge(position);
  }

  // The leader dies: what it acknowledged is there.
  void CheckStandby() {
    if (log_ == nullptr || !log_->queue.report().in_sync() || !is_true_) return;
    const Shard& shard = leader_.served().shard();
    const std::unique_ptr<Shard> copy = standbys_.TakeOver(ShardId(0));
    TESSERA_CHECK(copy != nullptr);
    for (const PlanMember& member : copy->plan().members) {
      const auto last = acknowledged_.find(member.member);
      if (last == acknowledged_.end()) continue;
      ReceivedPush repeated;
      repeated.member = member.member;
      repeated.exchange = last->second;
      const absl::StatusOr<PushAccepted> accepted = copy->Accept(std::move(repeated));
      TESSERA_CHECK(accepted.ok() && accepted->duplicate);
    }
    TESSERA_CHECK(copy->counters().version <= shard.counters().version);
    if (copy->counters().version == shard.counters().version && !job_.recipe.subnets) {
      TESSERA_CHECK(copy->ParametersHash() == shard.ParametersHash());
    }
    Feed();
  }

  void Detach() {
    if (log_ != nullptr) log_->queue.Break("it was ended");
    log_ = nullptr;
    leader_.served().gate().SetStandby(nullptr);
  }

  void ChangeMembers() {
    const size_t members = leader_.served().shard().plan().members.size();
    if (members > 0 && in_.Bit()) return leader_.RemoveMember(in_.Below(members));
    if (members < 3) leader_.AddMember();
  }

  void One() {
    switch (in_.Below(16)) {
      case 0:
      case 1:
      case 2:
        return Push();
      case 3:
      case 4:
        return leader_.Work(now_);
      case 5:
      case 6:
        return Send();
      case 7:
      case 8:
        return Arrive();
      case 9:
      case 10:
        return TellTruth();
      case 11:
        return Lie();
      case 12:
        return ChangeMembers();
      case 13:
        return Feed();
      case 14:
        return in_.Bit() ? CheckStandby() : Detach();
      case 15:
        now_ += absl::Milliseconds(in_.Count() % kPauseMaxMs);
        if (log_ != nullptr) log_->queue.CheckProgress(now_);
        return;
    }
  }

  const FuzzJob& job_;
  FuzzInput& in_;
  absl::Time now_ = absl::FromUnixSeconds(1000);
  FuzzLeader leader_;
  FollowedShards standbys_;
  std::unique_ptr<LogReader> reader_;
  std::shared_ptr<FuzzLog> log_;
  uint64_t term_ = 0;
  std::deque<LogQueue::Message> wire_;
  std::deque<uint64_t> acks_;
  uint64_t sent_ = 0;    // the last entry's position
  bool is_true_ = true;  // nothing was acknowledged that the standby does not have
  uint64_t asked_ = 0, answered_ = 0;
  std::map<MemberId, Exchange> acknowledged_;  // the last ones
};

}  // namespace
}  // namespace tessera

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tessera;
  FuzzInput input(data, size);
  const auto& jobs = LeadingJobs();
  Events(*jobs[input.Below(jobs.size())], &input).Run();
  return 0;
}
