// Where the train loop's thread spends its time.
#ifndef TESSERA_WORKER_TRAIN_PHASE_TIMER_H_
#define TESSERA_WORKER_TRAIN_PHASE_TIMER_H_

#include <array>
#include <functional>
#include <utility>

#include "absl/time/time.h"

namespace tessera {

enum class Phase { kCompute, kPull, kPush, kWait, kEvaluate, kOutside };

// The time since some moment. Never goes back.
using Clock = std::function<absl::Duration()>;
Clock SteadyClock();

constexpr int kPhases = 6;
// By Phase.
using PhaseSeconds = std::array<double, kPhases>;

// Every moment after Begin belongs to exactly one phase, so that their sum is the time that passed.
class PhaseTimer {
 public:
  explicit PhaseTimer(Clock clock) : clock_(std::move(clock)) {}

  // Time counts from here, as `phase`, if it has not before.
  void Begin(Phase phase) {
    Enter(phase);
    running_ = true;
  }

  // From now on it is `phase`. Returns the phase before.
  Phase Enter(Phase phase) {
    const Phase before = phase_;
    const absl::Duration now = clock_();
    if (running_) seconds_[Index(phase_)] += absl::ToDoubleSeconds(now - since_);
    phase_ = phase;
    since_ = now;
    return before;
  }

  // Moves `seconds` that were counted as `from` to `to`.
  void Move(Phase from, Phase to, double seconds) {
    if (!running_) return;
    seconds_[Index(from)] -= seconds;
    seconds_[Index(to)] += seconds;
  }

  double seconds(Phase phase) const { return seconds_[Index(phase)]; }
  // Of all phases, without what has passed of the present one.
  const PhaseSeconds& seconds() const { return seconds_; }
  bool running() const { return running_; }
  Phase phase() const { return phase_; }

 private:
  static int Index(Phase phase) { return static_cast<int>(phase); }

  Clock clock_;
  PhaseSeconds seconds_{};
  Phase phase_ = Phase::kOutside;
  absl::Duration since_;
  bool running_ = false;
};

}  // namespace tessera

#endif  // TESSERA_WORKER_TRAIN_PHASE_TIMER_H_
