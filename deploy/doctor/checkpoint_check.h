// Whether a job finds its checkpoints as it needs them.
#ifndef TESSERA_DEPLOY_DOCTOR_CHECKPOINT_CHECK_H_
#define TESSERA_DEPLOY_DOCTOR_CHECKPOINT_CHECK_H_

#include "deploy/doctor/findings.h"
#include "proto/job.pb.h"
#include "server/control/job_facts.h"

namespace tessera {

// Opens checkpoint.restore of a checked job, all of whose bytes are read, and compares it with the job's `facts` as
// servers do; and, unless the job `runs` already, looks whether checkpoint.directory has checkpoints that it does not
// go on from.
Findings CheckCheckpoints(const v1::Checkpoint& keys, const JobFacts& facts, bool runs);

}  // namespace tessera

#endif  // TESSERA_DEPLOY_DOCTOR_CHECKPOINT_CHECK_H_
