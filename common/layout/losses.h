// The losses that a model may name, and what each says of labels and of scores.
#ifndef TESSERA_COMMON_LAYOUT_LOSSES_H_
#define TESSERA_COMMON_LAYOUT_LOSSES_H_

#include <cstdint>

#include "absl/strings/string_view.h"
#include "proto/job.pb.h"

namespace tessera {

constexpr absl::string_view kSoftmax = "softmax_cross_entropy";
constexpr absl::string_view kSigmoid = "sigmoid_cross_entropy";
constexpr absl::string_view kSquares = "mean_squared_error";

// Whether a row's label is a number, which the only one of `outputs` is to come close to, and no class.
inline bool LearnsNumbers(const v1::Model& model, int64_t outputs) {
  return model.loss() == kSquares && outputs == 1;
}

// Whether each row has one class, which is among the first predictions or not. The others have sets of classes, a
// single output for two, or numbers.
inline bool HasSingleLabels(const v1::Model& model, int64_t outputs) {
  return model.loss() == kSoftmax || (model.loss() == kSquares && outputs > 1);
}

}  // namespace tessera

#endif  // TESSERA_COMMON_LAYOUT_LOSSES_H_
