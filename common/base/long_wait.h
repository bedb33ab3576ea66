// A wait that is told of now and then for as long as it lasts, so that whoever looks on knows what it is for.
#ifndef TESSERA_COMMON_BASE_LONG_WAIT_H_
#define TESSERA_COMMON_BASE_LONG_WAIT_H_

#include <string>

#include "absl/time/time.h"

namespace tessera {

// The wait of one thread. Time comes in as an argument, of any one clock.
class LongWait {
 public:
  // The wait began at `since`. A wait of less than `first` is not worth a word.
  LongWait(absl::Time since, absl::Duration first, absl::Duration every)
      : since_(since), every_(every), next_(since + first) {}
  LongWait(absl::Time since, absl::Duration every) : LongWait(since, every, every) {}

  // Whether to tell of the wait now. After a true answer the next one comes no sooner than after `every`.
  bool IsDue(absl::Time now) {
    if (now < next_) return false;
    next_ = now + every_;
    return true;
  }
  // The time at which to ask again.
  absl::Time next() const { return next_; }
  // How long the wait has lasted, for people: "1m12s".
  std::string SoFar(absl::Time now) const {
    return absl::FormatDuration(absl::Trunc(now - since_, absl::Seconds(1)));
  }

 private:
  const absl::Time since_;
  const absl::Duration every_;
  absl::Time next_;
};

}  // namespace tessera

#endif  // TESSERA_COMMON_BASE_LONG_WAIT_H_
