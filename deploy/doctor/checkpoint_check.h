// Whether a job finds its checkpoints as it needs them.
#ifndef TESSERA_DEPLOY_DOCTOR_CHECKPOINT_CHECK_H_
#define TESSERA_DEPLOY_DOCTOR_CHECKPOINT_CHECK_H_

#include "common/checkpoint/manifest.h"
#include "deploy/doctor/findings.h"
#include "proto/job.pb.h"

namespace tessera {

// Opens checkpoint.restore of a checked job, all of whose bytes are read, and compares it with `model`
// (JobFacts::model_manifest); and, unless the job `runs` already, looks whether checkpoint.directory has checkpoints
// that it does not go on from.
Findings CheckCheckpoints(const v1::Job& job, const Manifest& model, bool runs);

}  // namespace tessera

#endif  // TESSERA_DEPLOY_DOCTOR_CHECKPOINT_CHECK_H_
