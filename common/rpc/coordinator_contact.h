// What a process has heard of the coordinator, and how long it goes on without hearing more.
//
//   a word of an earlier term   is of a coordinator that another one has taken over from: not to be believed
//   silence for a lease         it is away: others may have gone on without this process, which stands still
//   silence for the patience    it is lost. The patience is the lease, or longer where another coordinator may take
//                               over (CoordinatorWord.away_timeout_ns)
#ifndef TESSERA_COMMON_RPC_COORDINATOR_CONTACT_H_
#define TESSERA_COMMON_RPC_COORDINATOR_CONTACT_H_

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "proto/coordinator.pb.h"

namespace tessera {

// One thread at a time. Time comes in as an argument (SteadyNow).
class CoordinatorContact {
 public:
  CoordinatorContact(absl::Duration lease, absl::Time now) : lease_(lease), last_heard_(now) {}

  // Tells that something came with that word; nullptr: with none. False: it is not to be believed, and nothing has
  // changed.
  bool Hear(const v1::CoordinatorWord* word, absl::Time now);

  bool has_heard() const { return has_heard_; }
  // The time at which something came last; before that, when this began.
  absl::Time last_heard() const { return last_heard_; }
  // The time since something was heard. A coordinator that was never heard is not silent: it may not have been
  // started yet.
  absl::Duration Silence(absl::Time now) const {
    return has_heard_ ? now - last_heard_ : absl::ZeroDuration();
  }
  absl::Duration lease() const { return lease_; }
  // Sets the lease, which whoever joins a job hears.
  void SetLease(absl::Duration lease) { lease_ = lease; }
  absl::Duration patience() const;
  // The last word that was believed.
  const v1::CoordinatorWord& word() const { return word_; }

 private:
  absl::Duration lease_;
  bool has_heard_ = false;
  absl::Time last_heard_;
  v1::CoordinatorWord word_;
};

// Logs "server: coordinator is away last_heard_s=15; nothing is trained, waiting for another s=45", or that it is
// back. `who` is "server", what becomes of it meanwhile "nothing is trained".
void LogCoordinatorAway(absl::string_view who, absl::string_view meanwhile, bool is_away,
                        absl::Duration silence, absl::Duration patience);

}  // namespace tessera

#endif  // TESSERA_COMMON_RPC_COORDINATOR_CONTACT_H_
