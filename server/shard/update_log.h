// Who is told of what a shard does without being asked: of folds and commits.
#ifndef TESSERA_SERVER_SHARD_UPDATE_LOG_H_
#define TESSERA_SERVER_SHARD_UPDATE_LOG_H_

#include "absl/time/time.h"
#include "server/shard/shard_event.h"

namespace tessera {

// Calls come from the shard's thread, in the order in which things happen.
class UpdateLog {
 public:
  virtual ~UpdateLog() = default;
  // A push was folded; the update may be committed next.
  virtual void OnFold(const FoldEvent& fold) = 0;
  // The update of the folds since the last commit was applied. Where updates are sums, the form has the sum until
  // the next fold (ExchangeForm::last_sum).
  virtual void OnCommit(absl::Time now) = 0;
  // One piece of work is done: a fold, a commit, or a fold that completed an update.
  virtual void OnAdvance(absl::Time now) = 0;
};

}  // namespace tessera

#endif  // TESSERA_SERVER_SHARD_UPDATE_LOG_H_
