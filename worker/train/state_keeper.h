// When a worker's own state goes to a checkpoint, and how it comes back.
//
// The servers' answer to an exchange says that the values it brings are in a checkpoint. The state is saved then, or
// behind the evaluation of just these values, which finds the batch norms' constants of the very model.
#ifndef TESSERA_WORKER_TRAIN_STATE_KEEPER_H_
#define TESSERA_WORKER_TRAIN_STATE_KEEPER_H_

#include <cstdint>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/exchange/parameter_client.h"
#include "worker/train/learner.h"
#include "worker/train/worker_state.h"

namespace tessera {

// One thread, the train loop's.
class StateKeeper {
 public:
  // Checkpoints up to `number` are not this worker's to write. `store`: nullptr where there are none. All outlive it.
  StateKeeper(WorkerStore* store, uint64_t number, Learner* learner, ParameterClient* servers)
      : store_(store), number_(number), learner_(*learner), servers_(*servers) {}

  // An exchange has brought `result`. `cursor`: where the loop was when it had trained what the servers were sent.
  // `waits`: an evaluation of just these values comes next, and the file waits for it.
  absl::Status OnExchange(const ExchangeResult& result, const WorkerCursor& cursor, bool waits);
  // Saves what OnExchange has put off, if it has.
  absl::Status SavePutOff(const WorkerCursor& cursor);
  // Training is over: writes to the last checkpoint, if there is to be one. Returns when that is whole or has failed.
  absl::Status SaveLast(const WorkerCursor& cursor);
  // Brings back what was saved, of what a codec holds back as well. nullopt: nothing was saved of this worker.
  absl::StatusOr<std::optional<WorkerCursor>> Load();

 private:
  // The learner's, and what the codec holds back.
  absl::StatusOr<PrivateState> State();

  WorkerStore* const store_;
  uint64_t number_;  // of the last checkpoint that this worker had to do with
  Learner& learner_;
  ParameterClient& servers_;
  // The number and the folder's step of a checkpoint whose file is put off.
  std::optional<std::pair<uint64_t, uint64_t>> put_off_;
};

}  // namespace tessera

#endif  // TESSERA_WORKER_TRAIN_STATE_KEEPER_H_
