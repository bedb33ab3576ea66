// A shard that leads, and a standby that hears of it through messages, both without threads.
#ifndef TESSERA_TESTS_SERVER_RPC_LED_SHARD_H_
#define TESSERA_TESTS_SERVER_RPC_LED_SHARD_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include <catch2/catch.hpp>

#include "server/rpc/followed_shards.h"
#include "server/rpc/shard_log_message.h"
#include "server/shard/log/standby_gate.h"

namespace tessera {

// Takes the log in whatever pieces the test delivers it in.
class Standby final : public LogSink {
 public:
  explicit Standby(std::unique_ptr<Shard> shard) : copy_(std::move(shard)) {}

  void Begin(bool copies) override { begun = true; }
  void Add(uint64_t position, Version version, ShardEvent event) override {
    Payload payload;
    v1::LogEntry entry = ToMessage(std::move(event), &payload);
    entry.set_position(position);
    entry.set_version(version.value());
    const std::string text = entry.SerializeAsString();
    queue_.emplace_back();
    REQUIRE(queue_.back().first.add_entries()->ParseFromString(text));
    queue_.back().second = std::move(payload);
  }
  void OnInSync() override { in_sync = true; }
  void Break(const std::string& why) override { broken = why; }

  // Of what is on its way, the next piece; returns whether there was one.
  bool Deliver(StandbyGate* gate) {
    if (!begun) return false;
    if (queue_.empty() && said_zero_) return false;
    uint64_t position = 0;
    if (!queue_.empty()) {
      const absl::StatusOr<uint64_t> taken =
          copy_.Take(queue_.front().first, std::move(queue_.front().second), absl::UnixEpoch());
      INFO(taken.status());
      REQUIRE(taken.ok());
      position = *taken;
      queue_.pop_front();
    }
    said_zero_ = true;
    gate->OnAcknowledged(this, position);
    return true;
  }
  std::unique_ptr<Shard> TakeOver() { return copy_.TakeOver(); }

  bool begun = false;
  bool in_sync = false;
  std::string broken;

 private:
  FollowedShard copy_;
  std::deque<std::pair<v1::LogChunk, Payload>> queue_;
  bool said_zero_ = false;
};

// A shard that leads, as its thread would run it.
struct Leader {
  explicit Leader(std::unique_ptr<Shard> s) : shard(std::move(s)), gate(shard.get()) {}

  void SetPlan(const Plan& plan) {
    shard->SetPlan(plan);
    gate.Append(PlanEvent{plan});
    gate.OnMembers();
  }
  void Rest(MemberId member, Exchange after, IdleNotice word) {
    shard->Rest(member, after, word);
    gate.Append(RestEvent{member, after, word});
  }
  // `needs_keys`: nothing was accepted, as the core is not known.
  void Push(ReceivedPush push, std::function<void(absl::Status)> done, bool* needs_keys = nullptr) {
    const MemberId member = push.member;
    const Exchange exchange = push.exchange;
    ReceivedPush logged = push.Share();
    const absl::StatusOr<PushAccepted> accepted = shard->Accept(std::move(push));
    if (!accepted.ok()) return done(accepted.status());
    if (accepted->need_keys) {
      REQUIRE(needs_keys != nullptr);
      *needs_keys = true;
      return;
    }
    if (gate.records_pushes() && !accepted->duplicate) gate.Append(PushEvent{std::move(logged)});
    gate.SayAccepted(member, exchange, std::move(done));
  }
  bool Advance(absl::Time now) {
    const bool worked = shard->Advance(now);
    gate.Settle();
    return worked;
  }

  std::unique_ptr<Shard> shard;
  StandbyGate gate;
};

}  // namespace tessera

#endif  // TESSERA_TESTS_SERVER_RPC_LED_SHARD_H_
