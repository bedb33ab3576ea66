// Where the train loop's thread spends its time.
#ifndef TESSERA_WORKER_TRAIN_PHASE_TIMER_H_
#define TESSERA_WORKER_TRAIN_PHASE_TIMER_H_

#include <array>
#include <chrono>

namespace tessera {

enum class Phase { kCompute, kPull, kPush, kWait, kEvaluate, kOutside };

// Every moment after Begin belongs to exactly one phase, so that their sum is the time that passed.
class PhaseTimer {
 public:
  // Time counts from here, as `phase`.
  void Begin(Phase phase) {
    phase_ = phase;
    since_ = Clock::now();
    running_ = true;
  }

  // From now on it is `phase`. Returns the phase before.
  Phase Enter(Phase phase) {
    const Phase before = phase_;
    const Clock::time_point now = Clock::now();
    if (running_) seconds_[Index(phase_)] += Seconds(now - since_);
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
  bool running() const { return running_; }

 private:
  using Clock = std::chrono::steady_clock;
  static int Index(Phase phase) { return static_cast<int>(phase); }
  static double Seconds(Clock::duration d) { return std::chrono::duration<double>(d).count(); }

  std::array<double, 6> seconds_{};
  Phase phase_ = Phase::kOutside;
  Clock::time_point since_;
  bool running_ = false;
};

}  // namespace tessera

#endif  // TESSERA_WORKER_TRAIN_PHASE_TIMER_H_
