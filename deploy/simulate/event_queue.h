// Simulated time: events happen one after the other, in the order of their times.
#ifndef TESSERA_DEPLOY_SIMULATE_EVENT_QUEUE_H_
#define TESSERA_DEPLOY_SIMULATE_EVENT_QUEUE_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "absl/time/time.h"
#include "deploy/simulate/small_call.h"

namespace tessera {

// Nanoseconds of simulated time: a length, or the time since the simulation began.
using SimNanos = int64_t;

constexpr SimNanos kNanosPerSecond = 1'000'000'000;
// Simulated time ends here, after 73 years: what would happen later is set for the end, and two lengths that go no
// further can be added.
constexpr SimNanos kSimEnd = SimNanos{1} << 61;

// The time `delay` after `time`, or the end. Neither is negative, and `time` is no later than the end.
constexpr SimNanos Later(SimNanos time, SimNanos delay) {
  return std::min(time + std::min(delay, kSimEnd), kSimEnd);
}

inline double ToSeconds(SimNanos nanos) { return static_cast<double>(nanos) / kNanosPerSecond; }
// The beginning is the Unix epoch, for what counts in absl::Time.
inline absl::Time ToTime(SimNanos nanos) { return absl::FromUnixNanos(nanos); }

// One thread. Events of the same time happen in the order in which they were put in, so that a
// simulation takes the same course every time.
//
// An event costs about log4 of those that are pending, in cache lines; nothing is allocated once
// the queue has been as long as it gets. At most 2^24 are pending.
class SimEventQueue {
 public:
  SimNanos now() const { return now_; }

  // Has `event` run at `time`, which is not before now.
  void At(SimNanos time, SmallCall event);
  // Has `event` run after `delay`, which is not negative.
  void After(SimNanos delay, SmallCall event) { At(Later(now_, delay), event); }

  // Goes on to the next event and runs it. False if there is none.
  bool RunNext();

  size_t pending() const { return heap_.size(); }
  uint64_t events() const { return events_; }

 private:
  // A heap in which every node has four children: half as deep as a binary one, and the children
  // of a node share a cache line.
  struct Entry {
    SimNanos time;
    uint64_t order;  // number of the event, then its slot
    bool Before(const Entry& other) const {
      return time != other.time ? time < other.time : order < other.order;
    }
  };

  void SiftDown(Entry entry);

  SimNanos now_ = 0;
  uint64_t next_ = 0;
  uint64_t events_ = 0;
  std::vector<Entry> heap_;
  std::vector<SmallCall> slots_;
  std::vector<uint32_t> free_slots_;
};

}  // namespace tessera

#endif  // TESSERA_DEPLOY_SIMULATE_EVENT_QUEUE_H_
