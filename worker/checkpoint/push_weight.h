// What a push counts for where a job has another number of workers than before.
#ifndef TESSERA_WORKER_CHECKPOINT_PUSH_WEIGHT_H_
#define TESSERA_WORKER_CHECKPOINT_PUSH_WEIGHT_H_

#include "proto/job.pb.h"

namespace tessera {

// True: servers add each push by itself, or divide by a number that the job names (docs/methods.md). False: it
// is one of a mean over the members' pushes, or weighs 1/cluster.workers.
inline bool CountsByItself(const v1::Method& method) {
  return method.has_async_sgd() || method.has_softsync() || method.has_decentralized();
}

}  // namespace tessera

#endif  // TESSERA_WORKER_CHECKPOINT_PUSH_WEIGHT_H_
