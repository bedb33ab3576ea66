#include "common/keyset/mean_share.h"

#include <algorithm>

#include "common/layout/layers/layer_kind.h"

namespace tessera {
namespace {

// Whether all that reads the layer's output in evaluation normalises each of its units.
bool IsNormalised(const ModelShape& shape, int layer) {
  bool is_read = false;
  for (int next = layer + 1; next < static_cast<int>(shape.layers.size()); ++next) {
    const ModelLayer& reader = shape.layers[next];
    if (std::find(reader.reads.begin(), reader.reads.end(), layer) == reader.reads.end()) continue;
    is_read = true;
    const LayerKind& kind = *reader.kind;
    // A layer that does nothing in evaluation, such as dropout, passes the question on to its readers.
    const bool passes = kind.is_off_in_evaluation && IsNormalised(shape, next);
    if (!passes && !kind.calibrates()) return false;
  }
  return is_read;
}

}  // namespace

std::vector<int> WeightsOfMeanShare(const ModelShape& shape, const NeuronGroups& groups) {
  std::vector<int> weights;
  // What a job of tensors computes with its values is its workers' own business, and so is evaluation.
  if (shape.layers.empty()) return weights;
  for (int p = 0; p < static_cast<int>(shape.parameters.size()); ++p) {
    const NeuronGroups::Use& use = groups.uses[p];
    // Only weights whose inputs are cut get smaller sums in a subnet than in the whole model.
    if (use.columns < 0 || !groups.IsCut(use.columns)) continue;
    if (!IsNormalised(shape, shape.parameters[p].layer)) weights.push_back(p);
  }
  return weights;
}

std::vector<float> FactorsOfWhole(const ModelShape& shape, const NeuronGroups& groups,
                                  int64_t sites) {
  const std::vector<int> weights = WeightsOfMeanShare(shape, groups);
  if (weights.empty()) return {};
  std::vector<float> factors(shape.parameters.size(), 1.0f);
  // Evaluation multiplies these sums by 1 / sites, which the factor undoes for values that are a whole network's.
  for (const int weight : weights) factors[weight] = static_cast<float>(sites);
  return factors;
}

std::vector<int> CutWithoutNorm(const ModelShape& shape, const NeuronGroups& groups) {
  std::vector<int> layers;
  for (int i = 0; i < static_cast<int>(shape.layers.size()); ++i) {
    const bool is_cut = shape.layers[i].kind->makes_units() &&
                        groups.IsCut(groups.activations[static_cast<size_t>(i + 1)]);
    if (is_cut && !IsNormalised(shape, i)) layers.push_back(i);
  }
  return layers;
}

}  // namespace tessera
