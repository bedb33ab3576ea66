#include "server/control/job_clock.h"

#include <algorithm>

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
  runs_.push_back({now, trained_});
  if (runs_.size() > kRunsMax) runs_.pop_front();
}

void JobClock::End(absl::Time now) {
  Pause(now);
  ended_ = true;
}

absl::Duration JobClock::Trained(absl::Time now) const {
  absl::Duration end = running_ ? absl::InfiniteDuration() : trained_;
  for (auto run = runs_.rbegin(); run != runs_.rend(); ++run) {
    if (now >= run->begin) return std::min(run->before + (now - run->begin), end);
    end = run->before;
  }
  return runs_.empty() ? trained_ : end;
}

v1::ClockState JobClock::Save() const {
  v1::ClockState state;
  state.set_started(started_);
  state.set_running(running_);
  state.set_ended(ended_);
  state.set_since(absl::ToUnixNanos(since_));
  state.set_trained(absl::ToInt64Nanoseconds(trained_));
  return state;
}

void JobClock::Load(const v1::ClockState& state) {
  started_ = state.started();
  running_ = state.running();
  ended_ = state.ended();
  since_ = absl::FromUnixNanos(state.since());
  trained_ = absl::Nanoseconds(state.trained());
  runs_.clear();
  if (running_) runs_.push_back({since_, trained_});
}

}  // namespace tessera
