#include "worker/model/precision.h"

#include "absl/strings/str_cat.h"

namespace tessera {

absl::StatusOr<Precision> PrecisionOf(absl::string_view name) {
  if (name == "f32") return Precision::kF32;
  if (name == "tf32") return Precision::kTf32;
  if (name == "bf16") return Precision::kBf16;
  return absl::InvalidArgumentError(
      absl::StrCat("train.precision: got \"", name, "\", want f32, tf32 or bf16"));
}

}  // namespace tessera
