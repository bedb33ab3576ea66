// Whether job.train says how a model can be trained, whatever the method.
#ifndef TESSERA_COMMON_CONFIG_TRAIN_CHECK_H_
#define TESSERA_COMMON_CONFIG_TRAIN_CHECK_H_

#include "common/config/key_errors.h"
#include "proto/job.pb.h"

namespace tessera {

// Adds to `errors` what contradicts itself in job.train: its optimizer and its schedule.
void CheckTrain(const v1::Job& job, KeyErrors* errors);

}  // namespace tessera

#endif  // TESSERA_COMMON_CONFIG_TRAIN_CHECK_H_
