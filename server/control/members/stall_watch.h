// A member may renew its lease and yet be lost: a thread of its own renews, while its training hangs in a
// driver, a lock or a dead disk. Renewals therefore say what the train loop is at, and how often it has
// gone on (progress.proto).
//
//   limit   10 times the longest that this member has been at work of this kind without going on, and at
//           least a lease. 10 leases for a first minibatch; none for a first evaluation, as nobody knows
//           how much there is to evaluate
//
// Nobody is lost for waiting: whom it waits for has a lease and a limit of its own.
#ifndef TESSERA_SERVER_CONTROL_MEMBERS_STALL_WATCH_H_
#define TESSERA_SERVER_CONTROL_MEMBERS_STALL_WATCH_H_

#include <algorithm>
#include <array>
#include <cstdint>

#include "absl/time/time.h"
#include "proto/progress.pb.h"

namespace tessera {

class StallWatch {
 public:
  // What the member said at `now`. One that does not tell its beats never stands still.
  void OnProgress(const v1::Progress& progress, absl::Time now) {
    if (progress.beats() == beats_) return;
    if (IsAtWork()) longest_[work_] = std::max(longest_[work_], now - since_);
    // A kind of a later build is none that is watched.
    work_ = static_cast<size_t>(progress.work()) < longest_.size() ? progress.work() : 0;
    beats_ = progress.beats();
    since_ = now;
  }

  // Nobody listened until `now`: what went by is not the member's.
  void Excuse(absl::Time now) { since_ = now; }

  // How long it has not gone on with its work; 0: it waits.
  absl::Duration Standing(absl::Time now) const {
    return IsAtWork() ? now - since_ : absl::ZeroDuration();
  }
  absl::Duration Limit(absl::Duration lease) const {
    const absl::Duration longest = longest_[work_];
    if (longest == absl::ZeroDuration()) {
      return work_ == v1::Progress::MINIBATCH ? kFactor * lease : absl::InfiniteDuration();
    }
    return std::max(lease, kFactor * longest);
  }
  bool IsOver(absl::Time now, absl::Duration lease) const {
    return IsAtWork() && Standing(now) > Limit(lease);
  }

 private:
  static constexpr int kFactor = 10;

  bool IsAtWork() const { return work_ != 0; }

  size_t work_ = 0;
  uint64_t beats_ = 0;
  absl::Time since_;
  std::array<absl::Duration, v1::Progress::Work_ARRAYSIZE> longest_{};  // by kind of work
};

}  // namespace tessera

#endif  // TESSERA_SERVER_CONTROL_MEMBERS_STALL_WATCH_H_
