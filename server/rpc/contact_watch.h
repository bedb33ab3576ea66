// What a server's link hears of the coordinator, among two threads: one hears, the other looks how long it was silent.
// Whoever notices tells that the coordinator is away, or is back (coordinator_contact.h).
#ifndef TESSERA_SERVER_RPC_CONTACT_WATCH_H_
#define TESSERA_SERVER_RPC_CONTACT_WATCH_H_

#include <functional>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/base/steady_clock.h"
#include "common/rpc/coordinator_contact.h"
#include "proto/coordinator.pb.h"
#include "proto/status.pb.h"

namespace tessera {

class ContactWatch {
 public:
  // `on_away` is called by the threads that call Hear and Look, one call at a time: what it is told last is what is
  // true. It may be empty.
  ContactWatch(absl::Duration lease, std::function<void(bool is_away)> on_away)
      : on_away_(std::move(on_away)), contact_(lease, SteadyNow()) {}

  // A message came from the coordinator, with this word or, nullptr, with none. False: it is not to be believed.
  bool Hear(const v1::CoordinatorWord* word);
  struct Silence {
    absl::Duration silence;
    absl::Duration patience;  // the server ends once it has been silent for longer
  };
  Silence Look();
  // The job is over and there is nothing to go on with: the patience is a lease.
  void SetClosing();

  bool has_heard() const;
  // The last word that was believed.
  v1::CoordinatorWord word() const;
  void Fill(v1::CoordinatorStatus* status) const;

 private:
  absl::Duration patience() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return is_closing_ ? contact_.lease() : contact_.patience();
  }
  void SetAway(bool is_away, absl::Duration silence);
  // Tells what is true by the time that others have told what they had to tell.
  void Tell() ABSL_LOCKS_EXCLUDED(mutex_);

  const std::function<void(bool)> on_away_;
  // This one is taken before `mutex_`, and held while on_away_ is called.
  absl::Mutex telling_;
  bool told_away_ ABSL_GUARDED_BY(telling_) = false;  // on_away_ has heard this, or is about to
  mutable absl::Mutex mutex_;
  CoordinatorContact contact_ ABSL_GUARDED_BY(mutex_);
  bool is_closing_ ABSL_GUARDED_BY(mutex_) = false;
  bool is_away_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Duration silence_then_ ABSL_GUARDED_BY(mutex_);  // the coordinator's, when is_away_ changed
};

}  // namespace tessera

#endif  // TESSERA_SERVER_RPC_CONTACT_WATCH_H_
