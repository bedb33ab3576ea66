#include "worker/train/phase_timer.h"

#include <chrono>

namespace tessera {

Clock SteadyClock() {
  return [] { return absl::FromChrono(std::chrono::steady_clock::now().time_since_epoch()); };
}

}  // namespace tessera
