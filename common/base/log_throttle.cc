#include "common/base/log_throttle.h"

#include <utility>

namespace tessera {

std::optional<uint64_t> LogThrottle::Pass(absl::Time now) {
  absl::MutexLock lock(&mutex_);
  if (now - begin_ >= interval_) {
    begin_ = now;
    passed_ = 0;
  }
  if (passed_ == lines_) {
    ++held_back_;
    return std::nullopt;
  }
  ++passed_;
  // The first line of an interval tells how many were held back before it.
  return std::exchange(held_back_, 0);
}

}  // namespace tessera
