// Virtual time: events happen one after the other, in the order of their times.
#ifndef TESSERA_TESTS_SIM_EVENT_QUEUE_H_
#define TESSERA_TESTS_SIM_EVENT_QUEUE_H_

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <utility>

#include "absl/time/time.h"

namespace tessera {

// One thread. Events of the same time happen in the order in which they were put in.
class EventQueue {
 public:
  absl::Time now() const { return now_; }

  // A time that has passed means now.
  void At(absl::Time time, std::function<void()> event) {
    events_.emplace(std::make_pair(std::max(time, now_), next_++), std::move(event));
  }

  // Goes on to the next event and runs it. False if there is none.
  bool RunNext() {
    if (events_.empty()) return false;
    const auto first = events_.begin();
    now_ = first->first.first;
    const std::function<void()> event = std::move(first->second);
    events_.erase(first);
    event();
    return true;
  }

 private:
  absl::Time now_ = absl::UnixEpoch();
  uint64_t next_ = 0;
  std::map<std::pair<absl::Time, uint64_t>, std::function<void()>> events_;
};

}  // namespace tessera

#endif  // TESSERA_TESTS_SIM_EVENT_QUEUE_H_
