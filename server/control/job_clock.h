// The time that a job has trained: from the first worker's first step on, less the evaluations.
#ifndef TESSERA_SERVER_CONTROL_JOB_CLOCK_H_
#define TESSERA_SERVER_CONTROL_JOB_CLOCK_H_

#include <cstddef>
#include <deque>

#include "absl/time/time.h"
#include "proto/coordinator_state.pb.h"

namespace tessera {

// Told the time by its caller, who never goes back.
class JobClock {
 public:
  // The first worker begins to compute. Later calls change nothing.
  void Start(absl::Time now);
  // Stops for an evaluation. No effect on a clock that stands.
  void Pause(absl::Time now);
  // Runs again after Pause. No effect before Start or after End.
  void Resume(absl::Time now);
  // Stands, and has run for this long; before Start only.
  void Restore(absl::Duration trained) { trained_ = trained; }
  // Stops for good.
  void End(absl::Time now);

  bool started() const { return started_; }
  bool running() const { return running_; }
  // At a time that is past as well, back to the last kRunsMax stops.
  absl::Duration Trained(absl::Time now) const;

  v1::ClockState Save() const;
  // As it was when it was saved: if it ran it has run since.
  void Load(const v1::ClockState& state);

  static constexpr size_t kRunsMax = 64;

 private:
  // It began to run, and had run for so long before.
  struct Run {
    absl::Time begin;
    absl::Duration before;
  };

  bool started_ = false;
  bool running_ = false;
  bool ended_ = false;
  absl::Time since_;
  absl::Duration trained_;
  // The last ones, the present one included.
  std::deque<Run> runs_;
};

}  // namespace tessera

#endif  // TESSERA_SERVER_CONTROL_JOB_CLOCK_H_
