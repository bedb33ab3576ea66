// What must hold between the keys of a job, once each of them is right by itself.
#ifndef TESSERA_COMMON_CONFIG_JOB_CHECK_H_
#define TESSERA_COMMON_CONFIG_JOB_CHECK_H_

#include "common/config/job_error.h"
#include "proto/job.pb.h"

namespace tessera {

// Adds an error for everything in `job` that contradicts itself: data (data_check.h), layers and loss, batch norm
// and batch size, the method's numbers and the workers, optimizer, schedule, the server list, etcd's, the device,
// files of security that go together. Keys that `errors` touches already are not looked at again. Where servers are
// listed, sets cluster.servers.count to their number.
void CheckJob(const Positions& positions, v1::Job* job, JobErrors* errors);

// Adds an error for every key that says `auto` and is for another program to choose (Recipe::open_keys).
void RefuseOpenKeys(const Positions& positions, const v1::Job& job, JobErrors* errors);

}  // namespace tessera

#endif  // TESSERA_COMMON_CONFIG_JOB_CHECK_H_
