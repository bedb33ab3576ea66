// Whether the job's processes have the memory that they need.
#ifndef TESSERA_DEPLOY_DOCTOR_MEMORY_CHECK_H_
#define TESSERA_DEPLOY_DOCTOR_MEMORY_CHECK_H_

#include <cstdint>
#include <optional>

#include "common/base/machine_memory.h"
#include "common/layout/parameters.h"
#include "common/method/recipe.h"
#include "deploy/doctor/findings.h"
#include "deploy/doctor/measured_delay.h"
#include "proto/job.pb.h"
#include "worker/data/dataset.h"

namespace tessera {

// Compares what the processes compute before they join (server/server_memory.h, worker/worker_memory.h) with
// cluster.memory_limit, and what those that are on this machine need together with `machine`, where it is known. All of
// the job is here where cluster.servers is a number or loopback addresses; elsewhere one worker, or with no `data` one
// server. Workers on a GPU are left out, as their host's memory is in no sum.
Findings CheckMemory(const v1::Job& job, const Recipe& recipe, const ModelShape& shape,
                     const Datasets* data, const std::optional<MachineMemory>& machine);

// What cluster.memory_limit costs of the speed of connections over such a way: a note for each kind of process whose
// windows the limit keeps narrow, with the limit that would let them follow the network. Nothing where there is no
// limit, no process would start under it, or the way is so short that narrow windows carry a gigabyte a second.
Findings CheckWindows(const v1::Job& job, const Recipe& recipe, const ModelShape& shape,
                      const Datasets* data, const MeasuredDelay& delay);

}  // namespace tessera

#endif  // TESSERA_DEPLOY_DOCTOR_MEMORY_CHECK_H_
