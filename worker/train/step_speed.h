// How fast a worker computes minibatches, as of late.
#ifndef TESSERA_WORKER_TRAIN_STEP_SPEED_H_
#define TESSERA_WORKER_TRAIN_STEP_SPEED_H_

#include <algorithm>
#include <cstdint>

namespace tessera {

class StepSpeed {
 public:
  // Minibatches from now on are of other sizes. The first of them finds cold memory, and is not
  // counted.
  void Restart() {
    steps_ = 0;
    mean_seconds_ = 0;
    is_cold_ = true;
  }

  void Add(double seconds) {
    if (is_cold_) {
      is_cold_ = false;
      return;
    }
    ++steps_;
    const double weight_least = std::min(kWeightLeast, mean_seconds_ / kSecondsMeant);
    const double weight = std::max(1.0 / static_cast<double>(steps_), weight_least);
    mean_seconds_ += weight * (seconds - mean_seconds_);
  }

  // 0: not known yet.
  double per_second() const { return mean_seconds_ > 0 ? 1 / mean_seconds_ : 0; }
  // The minibatches counted.
  uint64_t steps() const { return steps_; }

 private:
  // About the last twenty count, and of short ones those of the last two seconds: where others share
  // the machine, who computes when varies by tens of milliseconds.
  static constexpr double kWeightLeast = 0.1;
  static constexpr double kSecondsMeant = 1;

  uint64_t steps_ = 0;
  double mean_seconds_ = 0;
  bool is_cold_ = false;
};

}  // namespace tessera

#endif  // TESSERA_WORKER_TRAIN_STEP_SPEED_H_
