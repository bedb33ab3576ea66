// The reads that wait at one simulated server.
//
// A read waits for one of two things: that its member's own push is folded, or that the policy lets
// it. The first concerns one member at a time. For the second, policies let members read by how far
// all have come, so that a read after an early exchange is allowed no later than one after a late
// one: the earliest is asked first, and the others wait with it. Only a change of members may change
// the answers in another way, or several pushes that are folded at once, and then all are asked.
#ifndef TESSERA_DEPLOY_SIMULATE_PARKED_READS_H_
#define TESSERA_DEPLOY_SIMULATE_PARKED_READS_H_

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "absl/status/statusor.h"
#include "common/base/ids.h"
#include "deploy/simulate/observed_policy.h"
#include "server/shard/shard.h"

namespace tessera {

class SimulatedClient;

struct ParkedRead {
  MemberId member;
  Exchange after;
  SimulatedClient* client = nullptr;
  // The client's number of the exchange that asks.
  uint64_t call = 0;
  NamedKeys keys;
};

class ParkedReads {
 public:
  // Parks a read that waits for its own push first.
  void ParkBehindPush(const ParkedRead& read) { behind_push_[read.member] = read; }
  void Park(const ParkedRead& read) { by_exchange_[read.after].push_back(read); }

  // Calls answer(read, result) for every read that is allowed now, or refused, after `news`.
  template <typename Answer>
  void Serve(Shard* shard, const PolicyNews& news, Answer answer) {
    if (news.concerns_all) ServeAll(shard, answer);
    if (const auto found = behind_push_.find(news.folded); found != behind_push_.end()) {
      const ParkedRead read = found->second;
      behind_push_.erase(found);
      if (!Try(shard, read, answer)) Park(read);
    }
    while (!by_exchange_.empty()) {
      std::deque<ParkedRead>& group = by_exchange_.begin()->second;
      while (!group.empty() && Try(shard, group.front(), answer)) group.pop_front();
      if (!group.empty()) return;
      by_exchange_.erase(by_exchange_.begin());
    }
  }

  size_t size() const {
    size_t size = behind_push_.size();
    for (const auto& [after, group] : by_exchange_) size += group.size();
    return size;
  }

 private:
  // Answers a read that may be answered now. False: it must wait on.
  template <typename Answer>
  static bool Try(Shard* shard, const ParkedRead& read, Answer& answer) {
    absl::StatusOr<std::optional<ReadResult>> result =
        shard->Read(read.member, read.after, read.keys);
    if (result.ok() && !result->has_value()) return false;
    if (result.ok()) {
      answer(read, absl::StatusOr<ReadResult>(**std::move(result)));
    } else {
      answer(read, absl::StatusOr<ReadResult>(result.status()));
    }
    return true;
  }

  template <typename Answer>
  void ServeAll(Shard* shard, Answer& answer) {
    for (auto it = behind_push_.begin(); it != behind_push_.end();) {
      it = Try(shard, it->second, answer) ? behind_push_.erase(it) : std::next(it);
    }
    for (auto it = by_exchange_.begin(); it != by_exchange_.end();) {
      std::deque<ParkedRead> still;
      for (const ParkedRead& read : it->second) {
        if (!Try(shard, read, answer)) still.push_back(read);
      }
      it->second = std::move(still);
      it = it->second.empty() ? by_exchange_.erase(it) : std::next(it);
    }
  }

  // Ordered, so that all are asked in the same order every time.
  std::map<MemberId, ParkedRead> behind_push_;
  std::map<Exchange, std::deque<ParkedRead>> by_exchange_;
};

}  // namespace tessera

#endif  // TESSERA_DEPLOY_SIMULATE_PARKED_READS_H_
