// A worker's share of the job's report: what its loop did, and what was moved for it.
#ifndef TESSERA_WORKER_TRAIN_WORKER_REPORT_H_
#define TESSERA_WORKER_TRAIN_WORKER_REPORT_H_

#include "proto/coordinator.pb.h"
#include "worker/train/train_loop.h"

namespace tessera {

// Without what only the process knows: rank, memory, backend, machine. Of a worker that joined again steps and
// examples are this life's; traffic and phases are those of all its lives.
v1::WorkerReport ReportOf(const TrainLoop& loop);

}  // namespace tessera

#endif  // TESSERA_WORKER_TRAIN_WORKER_REPORT_H_
