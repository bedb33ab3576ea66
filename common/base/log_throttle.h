// Log lines that somebody else can cause as often as he likes.
#ifndef TESSERA_COMMON_BASE_LOG_THROTTLE_H_
#define TESSERA_COMMON_BASE_LOG_THROTTLE_H_

#include <cstdint>
#include <optional>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace tessera {

// Lets so many lines pass in each interval, from any thread.
class LogThrottle {
 public:
  LogThrottle(int lines, absl::Duration interval) : lines_(lines), interval_(interval) {}

  // If a line may be written at `now`: how many were held back since the last one that was written. Otherwise
  // nothing.
  std::optional<uint64_t> Pass(absl::Time now);

 private:
  const int lines_;
  const absl::Duration interval_;
  absl::Mutex mutex_;
  absl::Time begin_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();  // of this interval
  int passed_ ABSL_GUARDED_BY(mutex_) = 0;                           // in it
  uint64_t held_back_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace tessera

#endif  // TESSERA_COMMON_BASE_LOG_THROTTLE_H_
