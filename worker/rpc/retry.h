// When a call that has failed is made again, and when it is given up.
//
//   the n-th failure in a row   the next attempt is due after min(pause_max, pause_min * 2^(n-1)), less up to
//                               half of that by chance: callers that have all lost a server do not come back at
//                               the same moment
//   the time is nearly over     the last attempt is due when it is over, and no sooner
//
// All requests may be repeated without harm: what they do is counted once.
#ifndef TESSERA_WORKER_RPC_RETRY_H_
#define TESSERA_WORKER_RPC_RETRY_H_

#include <cstdint>
#include <optional>
#include <random>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/base/ids.h"

namespace tessera {

struct RetryPolicy {
  // How long it is tried, from the first failure on; above 0.
  absl::Duration time;
  absl::Duration pause_min;
  absl::Duration pause_max;
  // Another attempt may end otherwise than with this.
  bool (*may_help)(absl::StatusCode code);
};

// The policy of calls to a server, which refuses for the moment with ABORTED and RESOURCE_EXHAUSTED, and cuts off a
// reader whose network stands still with CANCELLED. Another program that has the port of a lost server answers with
// UNIMPLEMENTED.
RetryPolicy ServerRetry(absl::Duration time);
// The policy of calls to a worker that trains other layers, which does not answer before it has all that it waits for.
// What it says of the batch is final, and a refusal of who calls: the port of a lost one may be another program's.
RetryPolicy LayerWorkerRetry(absl::Duration time);
// The policy of calls to the coordinator, which are short: it is looked for often.
RetryPolicy CoordinatorRetry(absl::Duration time);

// One call's attempts. Decides and does not wait: whoever calls waits until due(), and may be woken sooner. Time
// comes in as an argument (SteadyNow), chance with the caller's number.
class Retry {
 public:
  enum class Verdict {
    kAgain,    // make it again at due()
    kRefused,  // the next attempt would end like this one
    kLate,     // it might help, but the time is over
  };

  // Who calls, and which of its calls that may fail at the same moment. The same one has the same pauses.
  Retry(RetryPolicy policy, MemberId caller, uint64_t call = 0);

  // An attempt has ended with this error.
  Verdict OnFailure(absl::StatusCode code, absl::Time now);
  // When the next attempt may begin; before the first failure: at once.
  absl::Time due() const { return due_; }
  // Failures in a row.
  int failures() const { return failures_; }
  const RetryPolicy& policy() const { return policy_; }

  // The time does not begin with the first failure, but now.
  void CountFrom(absl::Time now) { give_up_ = now + policy_.time; }
  // Who does not answer is not to blame: the whole time is there again, from the next failure on. Pauses stay as
  // long as they have become.
  void Forgive() { give_up_ = absl::InfiniteFuture(); }
  // It is somebody else who is called from now on: as if nothing had failed.
  void Restart();

 private:
  absl::Duration NextPause();

  RetryPolicy policy_;
  MemberId caller_;
  uint64_t call_;
  // From the first failure on: nearly all calls have none, and seeding allocates.
  std::optional<std::minstd_rand> random_;
  int failures_ = 0;
  absl::Time give_up_ = absl::InfiniteFuture();
  absl::Time due_ = absl::InfinitePast();
};

}  // namespace tessera

#endif  // TESSERA_WORKER_RPC_RETRY_H_
