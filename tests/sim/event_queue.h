// The simulation's queue of events, with times that the code under test takes and events that own what they hold.
#ifndef TESSERA_TESTS_SIM_EVENT_QUEUE_H_
#define TESSERA_TESTS_SIM_EVENT_QUEUE_H_

#include <algorithm>
#include <functional>
#include <utility>

#include "absl/time/time.h"
#include "deploy/simulate/event_queue.h"

namespace tessera {

class EventQueue {
 public:
  absl::Time now() const { return ToTime(events_.now()); }

  // A time that has passed means now. Fractions of a nanosecond are rounded up, so that it is not before `time` when
  // the event runs.
  void At(absl::Time time, std::function<void()> event) {
    SimNanos nanos = absl::ToUnixNanos(time);
    if (ToTime(nanos) < time) ++nanos;
    events_.At(std::max(nanos, events_.now()), std::move(event));
  }

  // Goes on to the next event and runs it. False if there is none.
  bool RunNext() { return events_.RunNext(); }

 private:
  BasicEventQueue<std::function<void()>> events_;
};

}  // namespace tessera

#endif  // TESSERA_TESTS_SIM_EVENT_QUEUE_H_
