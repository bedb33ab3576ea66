// A model that says how well each token would go on a text.
#ifndef TESSERA_DEPLOY_CLI_SAMPLE_NEXT_TOKEN_H_
#define TESSERA_DEPLOY_CLI_SAMPLE_NEXT_TOKEN_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace tessera {

// One thread.
class NextToken {
 public:
  virtual ~NextToken() = default;
  // The score of each token of the vocabulary in the place behind `tokens`, of which there is at least one, each in the
  // vocabulary. Of more than the model looks back at, the last ones count. The view lives until the next call. The
  // backend's codes.
  virtual absl::StatusOr<absl::Span<const float>> Scores(absl::Span<const int32_t> tokens) = 0;
};

}  // namespace tessera

#endif  // TESSERA_DEPLOY_CLI_SAMPLE_NEXT_TOKEN_H_
