// A worker's share of the job's report: what its loop did, and what was moved for it.
#ifndef TESSERA_WORKER_TRAIN_WORKER_REPORT_H_
#define TESSERA_WORKER_TRAIN_WORKER_REPORT_H_

#include "proto/coordinator.pb.h"
#include "worker/exchange/parameter_client.h"
#include "worker/train/train_loop.h"

namespace tessera {

// Without what only the process knows: rank, memory, backend, machine.
v1::WorkerReport ReportOf(const TrainLoop& loop, const Traffic& traffic);

// A worker that joined again: what it moved before, and the time that it took. Steps and examples are the
// last life's, which went on from the first one's.
void AddWork(const v1::WorkerReport& before, v1::WorkerReport* report);

}  // namespace tessera

#endif  // TESSERA_WORKER_TRAIN_WORKER_REPORT_H_
