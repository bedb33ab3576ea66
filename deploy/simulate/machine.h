// The processor cores of one simulated machine, shared fairly.
//
// A task wants some seconds of one core. With n tasks on C cores each runs at rate min(1, C / n):
// what an operating system's scheduler gives threads of equal weight, without its time slices.
#ifndef TESSERA_DEPLOY_SIMULATE_MACHINE_H_
#define TESSERA_DEPLOY_SIMULATE_MACHINE_H_

#include <cstdint>
#include <queue>
#include <vector>

#include "deploy/simulate/event_queue.h"
#include "deploy/simulate/small_call.h"

namespace tessera {

// All tasks run at the same rate, so one counter tells what each has been given since the machine
// was built, and tasks end in the order of the counter's value at which they are served. It has 32
// bits below a nanosecond; ends are rounded up to whole nanoseconds.
class SimMachine {
 public:
  // cores = 0: as many as there are tasks.
  SimMachine(int cores, SimEventQueue* events);
  SimMachine(const SimMachine&) = delete;

  // `done` runs when the task has had `work` of a core. Tasks that end together end in the order in
  // which they began.
  void Run(SimNanos work, SmallCall done);

  int cores() const { return cores_; }
  int running() const { return static_cast<int>(tasks_.size()); }

 private:
  using Served = unsigned __int128;  // nanoseconds << 32
  struct Task {
    Served end;
    uint64_t number;
    SmallCall done;
    bool operator>(const Task& other) const {
      return end != other.end ? end > other.end : number > other.number;
    }
  };

  void Advance();
  // Makes sure that an event comes no later than the next end.
  void SetAlarm();
  void OnAlarm(uint64_t alarm);

  const int cores_;
  SimEventQueue& events_;
  Served served_ = 0;
  SimNanos served_at_ = 0;
  uint64_t next_task_ = 0;
  uint64_t alarm_ = 0;  // number of the one that counts
  SimNanos alarm_time_ = 0;
  bool alarm_set_ = false;
  std::priority_queue<Task, std::vector<Task>, std::greater<Task>> tasks_;
};

}  // namespace tessera

#endif  // TESSERA_DEPLOY_SIMULATE_MACHINE_H_
