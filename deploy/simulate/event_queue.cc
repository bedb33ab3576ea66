#include "deploy/simulate/event_queue.h"

#include <algorithm>

#include "common/base/check.h"

namespace tessera {
namespace {

constexpr size_t kChildren = 4;
// A slot's number has 24 bits, an event's the other 40: 10^12 events, which take days to run.
constexpr int kSlotBits = 24;
constexpr uint64_t kSlotMask = (uint64_t{1} << kSlotBits) - 1;

}  // namespace

void SimEventQueue::At(SimNanos time, SmallCall event) {
  TESSERA_CHECK(time >= now_);
  // What would happen later than the end happens at the end.
  time = std::min(time, kSimEnd);
  uint64_t slot = slots_.size();
  if (free_slots_.empty()) {
    TESSERA_CHECK(slot <= kSlotMask);
    slots_.push_back(event);
  } else {
    slot = free_slots_.back();
    free_slots_.pop_back();
    slots_[slot] = event;
  }
  TESSERA_CHECK(next_ >> (64 - kSlotBits) == 0);
  const Entry entry{time, next_++ << kSlotBits | slot};
  size_t at = heap_.size();
  heap_.push_back(entry);
  while (at > 0) {
    // Parents move down until the entry's place is found: an entry is written once.
    const size_t parent = (at - 1) / kChildren;
    if (!entry.Before(heap_[parent])) break;
    heap_[at] = heap_[parent];
    at = parent;
  }
  heap_[at] = entry;
}

bool SimEventQueue::RunNext() {
  if (heap_.empty()) return false;
  const Entry first = heap_.front();
  const Entry last = heap_.back();
  heap_.pop_back();
  if (!heap_.empty()) SiftDown(last);
  const auto slot = static_cast<uint32_t>(first.order & kSlotMask);
  // A copy: the event may put in others, which move the slots.
  SmallCall event = slots_[slot];
  free_slots_.push_back(slot);
  now_ = first.time;
  ++events_;
  event();
  return true;
}

// Places `entry` from the top: it sinks to where no child is earlier.
void SimEventQueue::SiftDown(Entry entry) {
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
