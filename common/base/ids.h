// Identifiers as types, so that a version is never passed where an exchange is wanted.
#ifndef TESSERA_COMMON_BASE_IDS_H_
#define TESSERA_COMMON_BASE_IDS_H_

#include <cstdint>
#include <functional>
#include <ostream>

namespace tessera {

// An integer of one kind. Comparable, hashable, printable; arithmetic only by whole steps.
template <typename Tag>
class Id {
 public:
  constexpr Id() = default;
  constexpr explicit Id(uint64_t value) : value_(value) {}
  constexpr uint64_t value() const { return value_; }
  constexpr Id Next() const { return Id(value_ + 1); }

  friend constexpr bool operator==(Id a, Id b) { return a.value_ == b.value_; }
  friend constexpr bool operator!=(Id a, Id b) { return a.value_ != b.value_; }
  friend constexpr bool operator<(Id a, Id b) { return a.value_ < b.value_; }
  friend constexpr bool operator<=(Id a, Id b) { return a.value_ <= b.value_; }
  friend constexpr bool operator>(Id a, Id b) { return a.value_ > b.value_; }
  friend constexpr bool operator>=(Id a, Id b) { return a.value_ >= b.value_; }
  friend std::ostream& operator<<(std::ostream& out, Id id) { return out << id.value_; }
  template <typename H>
  friend H AbslHashValue(H h, Id id) {
    return H::combine(std::move(h), id.value_);
  }

 private:
  uint64_t value_ = 0;
};

// One worker process in the job. The number is never used again: a restarted worker is a new member. 0 is
// nobody.
using MemberId = Id<struct MemberTag>;
// A worker's place among the workers, from 0. A later member may take over a lost one's.
using Rank = Id<struct RankTag>;
// A server's place among the servers, from 0.
using ShardId = Id<struct ShardTag>;
// One minibatch on one worker; counts from 0, so `Step(n)` has n minibatches behind it.
using Step = Id<struct StepTag>;
// One push and the pull after it, counted per worker from 1; 0 is the state before any.
// Under a barrier the same number means the same update for all.
using Exchange = Id<struct ExchangeTag>;
// A shard's count of committed updates.
using Version = Id<struct VersionTag>;
// The number of a plan of members; raised by every change.
using Generation = Id<struct GenerationTag>;

// An idle notice: a worker comes to an evaluation or to its end, and makes no exchange for a while, so that nobody
// need wait for it; or it goes on. The latest notice counts, whatever overtakes it.
struct IdleNotice {
  uint64_t number = 0;  // from 1; 0: no word
  bool rests = false;
};

}  // namespace tessera

#endif  // TESSERA_COMMON_BASE_IDS_H_
