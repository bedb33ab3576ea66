#include "common/layout/layers/layer_kind.h"

#include <cmath>

namespace tessera {

std::vector<ParameterSpec> WeightAndBias(int64_t rows, int64_t columns, bool has_bias) {
  const float bound = static_cast<float>(1.0 / std::sqrt(static_cast<double>(columns)));
  std::vector<ParameterSpec> parameters = {{"weight", rows, columns, false, 0, bound, 0}};
  parameters[0].is_factor = true;
  if (has_bias) parameters.push_back({"bias", rows, 1, true, 0, bound, 0});
  return parameters;
}

}  // namespace tessera
