// Simulated time: events happen one after the other, in the order of their times. `tessera simulate` and the tests that
// simulate faults (tests/sim) run on it.
#ifndef TESSERA_DEPLOY_SIMULATE_EVENT_QUEUE_H_
#define TESSERA_DEPLOY_SIMULATE_EVENT_QUEUE_H_

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "common/base/check.h"
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

// `Event` is called without arguments, once: SmallCall, which costs no allocation, or std::function.
//
// One thread. Events of the same time happen in the order in which they were put in, so that a
// simulation takes the same course every time.
//
// An event costs about log4 of those that are pending, in cache lines; nothing is allocated once
// the queue has been as long as it gets. At most 2^24 are pending.
template <typename Event>
class BasicEventQueue {
 public:
  SimNanos now() const { return now_; }

  // Has `event` run at `time`, which is not before now.
  void At(SimNanos time, Event event);
  // Has `event` run after `delay`, which is not negative.
  void After(SimNanos delay, Event event) { At(Later(now_, delay), std::move(event)); }

  // Goes on to the next event and runs it. False if there is none.
  bool RunNext();

  size_t pending() const { return heap_.size(); }
  uint64_t events() const { return events_; }

 private:
  // A heap in which every node has four children: half as deep as a binary one, and the children
  // of a node share a cache line.
  static constexpr size_t kChildren = 4;
  // A slot's number has 24 bits, an event's the other 40: 10^12 events, which take days to run.
  static constexpr int kSlotBits = 24;
  static constexpr uint64_t kSlotMask = (uint64_t{1} << kSlotBits) - 1;

  struct Entry {
    SimNanos time;
    uint64_t order;  // number of the event, then its slot
    bool Before(const Entry& other) const {
      return time != other.time ? time < other.time : order < other.order;
    }
  };

  uint64_t Keep(Event event);
  void SiftUp(Entry entry);
  void SiftDown(Entry entry);

  SimNanos now_ = 0;
  uint64_t next_ = 0;
  uint64_t events_ = 0;
  std::vector<Entry> heap_;
  std::vector<Event> slots_;
  std::vector<uint32_t> free_slots_;
};

using SimEventQueue = BasicEventQueue<SmallCall>;

template <typename Event>
void BasicEventQueue<Event>::At(SimNanos time, Event event) {
  TESSERA_CHECK(time >= now_);
  TESSERA_CHECK(next_ >> (64 - kSlotBits) == 0);
  const uint64_t slot = Keep(std::move(event));
  // What would happen later than the end happens at the end.
  SiftUp({std::min(time, kSimEnd), next_++ << kSlotBits | slot});
}

template <typename Event>
bool BasicEventQueue<Event>::RunNext() {
  if (heap_.empty()) return false;
  const Entry first = heap_.front();
  const Entry last = heap_.back();
  heap_.pop_back();
  if (!heap_.empty()) SiftDown(last);
  const auto slot = static_cast<uint32_t>(first.order & kSlotMask);
  // Out of its slot: the event may put in others, which move the slots.
  Event event = std::move(slots_[slot]);
  free_slots_.push_back(slot);
  now_ = first.time;
  ++events_;
  event();
  return true;
}

// The slot in which `event` lies until it runs.
template <typename Event>
uint64_t BasicEventQueue<Event>::Keep(Event event) {
  if (free_slots_.empty()) {
    TESSERA_CHECK(slots_.size() <= kSlotMask);
    slots_.push_back(std::move(event));
    return slots_.size() - 1;
  }
  const uint64_t slot = free_slots_.back();
  free_slots_.pop_back();
  slots_[slot] = std::move(event);
  return slot;
}

// Adds `entry` at the bottom and lets it rise: parents move down until its place is found, so that it is written once.
template <typename Event>
void BasicEventQueue<Event>::SiftUp(Entry entry) {
  size_t at = heap_.size();
  heap_.push_back(entry);
  while (at > 0) {
    const size_t parent = (at - 1) / kChildren;
    if (!entry.Before(heap_[parent])) break;
    heap_[at] = heap_[parent];
    at = parent;
  }
  heap_[at] = entry;
}

// Places `entry` from the top: it sinks to where no child is earlier.
template <typename Event>
void BasicEventQueue<Event>::SiftDown(Entry entry) {
  const size_t size = heap_.size();
  size_t at = 0;
  while (true) {
    const size_t begin = at * kChildren + 1;
    if (begin >= size) break;
    const size_t end = std::min(begin + kChildren, size);
    size_t least = begin;
    for (size_t child = begin + 1; child < end; ++child) {
      if (heap_[child].Before(heap_[least])) least = child;
    }
    if (!heap_[least].Before(entry)) break;
    heap_[at] = heap_[least];
    at = least;
  }
  heap_[at] = entry;
}

}  // namespace tessera

#endif  // TESSERA_DEPLOY_SIMULATE_EVENT_QUEUE_H_
