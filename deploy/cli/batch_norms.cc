#include "deploy/cli/batch_norms.h"

#include <cmath>

#include "common/base/check.h"
#include "common/layout/layers/layer_kinds.h"
#include "common/layout/parameters.h"

namespace tessera {

absl::StatusOr<std::vector<BatchNormLayer>> BatchNormsOf(const v1::Model& model) {
  std::vector<BatchNormLayer> norms;
  if (!Calibrates(model)) return norms;
  TESSERA_ASSIGN_OR_RETURN(const ModelShape shape, ShapeOf(model));
  for (int i = 0; i < static_cast<int>(shape.layers.size()); ++i) {
    const ModelLayer& layer = shape.layers[static_cast<size_t>(i)];
    if (!layer.kind->calibrates()) continue;
    norms.push_back({layer.name, shape.before(i).channels, layer.kind->epsilon(layer.settings)});
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
