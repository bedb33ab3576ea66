// The batch norms of a model, and what evaluation normalises with.
#ifndef TESSERA_DEPLOY_CLI_BATCH_NORMS_H_
#define TESSERA_DEPLOY_CLI_BATCH_NORMS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/job.pb.h"

namespace tessera {

struct BatchNormLayer {
  // The layer's name (ModelLayer::name).
  std::string name;
  int64_t channels = 0;
  double epsilon = 0;
};

// The batch norms in the order in which ModelFacts::norm_constants has them. kInvalidArgument: `model` is no
// model; one without batch norms is always right here.
absl::StatusOr<std::vector<BatchNormLayer>> BatchNormsOf(const v1::Model& model);
// How many numbers ModelFacts::norm_constants has: for each channel its mean and 1/sigma.
int64_t ConstantsOf(const std::vector<BatchNormLayer>& norms);

// sigma^2 without `epsilon`, and its inverse as evaluation has it.
double VarianceOf(float inverse_sigma, double epsilon);
float InverseSigmaOf(double variance, double epsilon);

}  // namespace tessera

#endif  // TESSERA_DEPLOY_CLI_BATCH_NORMS_H_
