// A worker's training has ended with an error: is it to join again?
//
// A server that is lost is noticed by whoever wants something of it first. The coordinator knows once the lease is
// over, and then takes the job back to its last checkpoint; until then it is asked again and again.
#ifndef TESSERA_WORKER_REJOIN_H_
#define TESSERA_WORKER_REJOIN_H_

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/coordinator.pb.h"

namespace tessera {

// Whether a worker whose membership has ended joins again. Pure: the coordinator's words and the time come in.
class RejoinQuestion {
 public:
  enum class Answer { kAskAgain, kJoinAgain, kEnd };

  // Training ended `now`, because of `why`. 0 < lease: of the job.
  RejoinQuestion(absl::Status why, absl::Duration lease, absl::Time now);

  // Not so: the error is of this worker alone, and there is nothing to ask.
  bool may_be_server() const;
  // The coordinator's word, or why there is none. `may_return`: it is away, the job waits for it, and
  // renewals say when that is over.
  Answer OnWord(const absl::StatusOr<v1::RenewReply>& word, bool may_return, absl::Time now);

 private:
  absl::Status why_;
  absl::Duration notice_after_;
  absl::Time notice_;  // by then the coordinator knows
};

}  // namespace tessera

#endif  // TESSERA_WORKER_REJOIN_H_
