// Draws tokens by their scores.
//
// With the temperature T, token t is drawn with the probability exp(s_t / T) / sum exp(s_k / T), s being the scores;
// with T = 0 it is the first of the largest scores. Draw n, counted from 0, is the first token whose cumulated
// probability is above u = (w[0] + w[1] 2^32) / 2^64, w being the words of Philox(seed, kSample, 0, n).
#ifndef TESSERA_DEPLOY_CLI_SAMPLE_SAMPLER_H_
#define TESSERA_DEPLOY_CLI_SAMPLE_SAMPLER_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace tessera {

class Sampler {
 public:
  // `temperature` is finite and at least 0.
  Sampler(double temperature, uint64_t seed) : temperature_(temperature), seed_(seed) {}

  // The next draw, out of scores of at least one token. kFailedPrecondition: a score is not a finite number.
  absl::StatusOr<int32_t> Draw(absl::Span<const float> scores);

 private:
  const double temperature_;
  const uint64_t seed_;
  uint64_t drawn_ = 0;
  std::vector<double> cumulated_;
};

}  // namespace tessera

#endif  // TESSERA_DEPLOY_CLI_SAMPLE_SAMPLER_H_
