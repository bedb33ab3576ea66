#include "deploy/cli/batch_norms.h"

#include <algorithm>
#include <cmath>

#include "common/base/check.h"
#include "worker/model/plan.h"

namespace tessera {

absl::StatusOr<std::vector<BatchNormLayer>> BatchNormsOf(const v1::Model& model) {
  std::vector<BatchNormLayer> norms;
  const bool has_any = std::any_of(model.layers().begin(), model.layers().end(),
                                   [](const v1::Layer& layer) { return layer.has_batch_norm(); });
  if (!has_any) return norms;
  TESSERA_ASSIGN_OR_RETURN(const NetworkPlan plan, PlanOf(model));
  for (const StagePlan& stage : plan.stages) {
    if (stage.kind != StagePlan::Kind::kBatchNorm) continue;
    norms.push_back({stage.layer, stage.map.from.channels, stage.epsilon});
  }
  return norms;
}

int64_t ConstantsOf(const std::vector<BatchNormLayer>& norms) {
  int64_t constants = 0;
  for (const BatchNormLayer& norm : norms) constants += 2 * norm.channels;
  return constants;
}

double VarianceOf(float inverse_sigma, double epsilon) {
  const double sigma = 1.0 / inverse_sigma;
  const double variance = sigma * sigma - epsilon;
  // A variance that rounding has brought below 0 is 0; what is not a number stays that.
  return variance < 0 ? 0 : variance;
}

float InverseSigmaOf(double variance, double epsilon) {
  return static_cast<float>(1 / std::sqrt(variance + epsilon));
}

}  // namespace tessera
