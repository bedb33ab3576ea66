#include "server/control/progress_limits.h"

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/checkpoint/manifest.h"

namespace tessera {
namespace {

absl::Status CheckBelow(absl::string_view where, absl::string_view what, uint64_t value,
                        uint64_t end) {
  if (value < end) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(where, ": ", what, " ", value, ", want below ", end));
}

}  // namespace

absl::Status CheckStep(absl::string_view where, uint64_t step) {
  return CheckBelow(where, "step is", step, kSavedStepEnd);
}

absl::Status CheckProgress(absl::string_view where, const v1::Progress& progress) {
  TESSERA_RETURN_IF_ERROR(CheckStep(where, progress.step()));
  TESSERA_RETURN_IF_ERROR(CheckBelow(where, "exchange is", progress.exchange(), kSavedNumberEnd));
  // No epoch is shorter than a step.
  TESSERA_RETURN_IF_ERROR(CheckBelow(where, "epoch is", progress.epoch(), kSavedStepEnd));
  return CheckBelow(where, "examples are", progress.examples(), kSavedCountEnd);
}

}  // namespace tessera
