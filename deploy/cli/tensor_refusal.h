// What commands that compute with a model's layers say of a job of tensors, which has none.
#ifndef TESSERA_DEPLOY_CLI_TENSOR_REFUSAL_H_
#define TESSERA_DEPLOY_CLI_TENSOR_REFUSAL_H_

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/layout/tensor_layout.h"
#include "proto/job.pb.h"

namespace tessera {

// kInvalidArgument where `model` is a job's of tensors: that `command` needs layers, and what to do `instead`.
inline absl::Status RefuseTensors(absl::string_view command, const v1::Model& model,
                                  absl::string_view instead) {
  if (!IsOfTensors(model)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      command,
      ": model.tensors: a job of tensors has no layers to compute with, as its workers' own "
      "programs have them; ",
      instead));
}

}  // namespace tessera

#endif  // TESSERA_DEPLOY_CLI_TENSOR_REFUSAL_H_
