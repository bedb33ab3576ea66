// What a worker may say of where it is: numbers that a checkpoint can be read with again.
#ifndef TESSERA_SERVER_CONTROL_PROGRESS_LIMITS_H_
#define TESSERA_SERVER_CONTROL_PROGRESS_LIMITS_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "proto/progress.pb.h"

namespace tessera {

// kInvalidArgument, beginning with `where` and naming the field: a step, an epoch, an exchange or rows beyond what a
// job may count to (kSavedStepEnd and the others in common/checkpoint/manifest.h).
absl::Status CheckProgress(absl::string_view where, const v1::Progress& progress);
absl::Status CheckStep(absl::string_view where, uint64_t step);

}  // namespace tessera

#endif  // TESSERA_SERVER_CONTROL_PROGRESS_LIMITS_H_
