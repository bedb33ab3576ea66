// Whether job.model is a model, and one that its minibatches can train.
#ifndef TESSERA_COMMON_CONFIG_MODEL_CHECK_H_
#define TESSERA_COMMON_CONFIG_MODEL_CHECK_H_

#include "common/config/job_error.h"
#include "proto/job.pb.h"

namespace tessera {

// Adds to `errors` what is wrong with job.model, at the layer that it is about, and of the minibatch what
// the model cannot have.
void CheckModel(const Positions& positions, const v1::Job& job, JobErrors* errors);

}  // namespace tessera

#endif  // TESSERA_COMMON_CONFIG_MODEL_CHECK_H_
