#include "deploy/simulate/machine.h"

#include <algorithm>

#include "common/base/check.h"

namespace tessera {
namespace {

constexpr int kFractionBits = 32;
// Each change of the number of tasks may round the counter down by its last bit. Ends count as reached a thousandth of
// a thousandth of a nanosecond early, so that this never costs a whole one.
constexpr unsigned kSlack = 1 << 12;

}  // namespace

SimMachine::SimMachine(int cores, SimEventQueue* events) : cores_(cores), events_(*events) {
  TESSERA_CHECK(cores >= 0);
}

void SimMachine::Run(SimNanos work, SmallCall done) {
  TESSERA_CHECK(work >= 0);
  // As many cores as tasks: nobody waits, and nothing need be counted.
  if (cores_ == 0) {
    events_.After(work, done);
    return;
  }
  Advance();
  work = std::min(work, kSimEnd);
  tasks_.push({served_ + (static_cast<Served>(work) << kFractionBits), next_task_++, done});
  SetAlarm();
}

void SimMachine::Advance() {
  const Served passed = static_cast<Served>(events_.now() - served_at_) << kFractionBits;
  served_at_ = events_.now();
  const size_t tasks = tasks_.size();
  const auto cores = static_cast<size_t>(cores_);
  // With more tasks than cores each gets cores / tasks of the time.
  served_ += tasks <= cores ? passed : passed * cores / tasks;
}

void SimMachine::SetAlarm() {
  if (tasks_.empty()) return;
  const Served end = tasks_.top().end;
  Served left = end > served_ + kSlack ? end - served_ - kSlack : 0;
  const size_t tasks = tasks_.size();
  const auto cores = static_cast<size_t>(cores_);
  Served per_nano = Served{1} << kFractionBits;
  if (tasks > cores) {
    left *= tasks;
    // The counter runs slower than time then, and the same service takes longer.
    per_nano *= cores;
  }
  const Served wait = (left + per_nano - 1) / per_nano;
  const SimNanos time =
      Later(served_at_, static_cast<SimNanos>(std::min(wait, static_cast<Served>(kSimEnd))));
  // An alarm that comes too early sets the next one.
  if (alarm_set_ && alarm_time_ <= time) return;
  alarm_set_ = true;
  alarm_time_ = time;
  events_.At(time, [this, alarm = ++alarm_] { OnAlarm(alarm); });
}

void SimMachine::OnAlarm(uint64_t alarm) {
  if (alarm != alarm_) return;  // An earlier one has taken its place.
  alarm_set_ = false;
  Advance();
  // All that end at this moment end now, in their order.
  while (!tasks_.empty() && tasks_.top().end <= served_ + kSlack) {
    SmallCall done = tasks_.top().done;
    tasks_.pop();
    done();
  }
  // Tasks that have ended leave more for the others.
  SetAlarm();
}

}  // namespace tessera
