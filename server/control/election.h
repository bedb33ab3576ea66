// Which of the servers is the coordinator, by a key and a lease in etcd.
//
//   1. grant      a lease
//   2. campaign   make the key, bound to the lease, if it is not there: done, this one leads. Whoever it was
//                 that an answer got lost of finds its own lease at the key: it leads, too
//   3. await      it is there: until it changes, or for a while, then 2
//   4. keep       leading: keep the lease alive, three times in its time
//
// A lease counts from before the call that granted or renewed it, by this process's clock, and a margin less:
// when it may be over this one leads no longer, whatever etcd would say. So never two lead at once, as long as
// clocks run at the same speed within the margin. Clocks need not show the same time.
#ifndef TESSERA_SERVER_CONTROL_ELECTION_H_
#define TESSERA_SERVER_CONTROL_ELECTION_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace tessera {

// Pure: what came of the last step comes in, the next step comes out.
class Election {
 public:
  enum class Step { kGrant, kCampaign, kAwait, kKeep };
  struct Task {
    Step step = Step::kGrant;
    absl::Time at;
  };
  Task Next() const { return {step_, at_}; }

  // `asked`: before the call was made. `granted`: the lease's id and time; an error: it is tried again.
  struct Lease {
    int64_t id = 0;
    absl::Duration ttl;
  };
  void OnGranted(absl::Time asked, const absl::StatusOr<Lease>& granted, absl::Time now);
  // The key's revision and the lease that it is bound to, whether it was made now or had been.
  struct Holder {
    int64_t lease = 0;
    int64_t revision = 0;
  };
  void OnCampaign(const absl::StatusOr<Holder>& holder, absl::Time now);
  void OnAwaited(absl::Time now);
  // The lease's time. kNotFound: it is over.
  void OnKept(absl::Time asked, const absl::StatusOr<absl::Duration>& ttl, absl::Time now);
  // Its tenure is over, for a reason of its own; the lease is given back. It stays out for a whole time of the
  // lease, so that another one may try.
  void Resign(absl::Time now);

  // Nobody else can be leading by `now`.
  bool Leads(absl::Time now) const { return revision_ != 0 && now < held_until_; }
  // Names its tenure; 0: it does not lead, or has not found out.
  int64_t revision() const { return revision_; }
  int64_t lease() const { return lease_; }
  absl::Time held_until() const { return held_until_; }

 private:
  void Lose(absl::Time now);
  absl::Time HeldFrom(absl::Time asked, absl::Duration ttl) const { return asked + ttl - ttl / 8; }

  Step step_ = Step::kGrant;
  absl::Time at_ = absl::InfinitePast();
  int64_t lease_ = 0;
  absl::Duration ttl_;
  absl::Time held_until_ = absl::InfinitePast();
  int64_t revision_ = 0;
};

}  // namespace tessera

#endif  // TESSERA_SERVER_CONTROL_ELECTION_H_
