#include "server/control/job_clock.h"

namespace tessera {

void JobClock::Start(absl::Time now) {
  if (started_) return;
  started_ = true;
  Resume(now);
}

void JobClock::Pause(absl::Time now) {
  if (!running_) return;
  trained_ += now - since_;
  running_ = false;
}

void JobClock::Resume(absl::Time now) {
  if (!started_ || running_ || ended_) return;
  since_ = now;
  running_ = true;
}

void JobClock::End(absl::Time now) {
  Pause(now);
  ended_ = true;
}

absl::Duration JobClock::Trained(absl::Time now) const {
  return running_ ? trained_ + (now - since_) : trained_;
}

}  // namespace tessera
