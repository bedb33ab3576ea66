#include "common/keyset/mean_share.h"

#include "common/layout/layers/layer_kinds.h"

namespace tessera {
namespace {

// Whether what follows the layer in evaluation normalises each of its units.
bool IsNormalised(const v1::Model& model, int layer) {
  for (int next = layer + 1; next < model.layers_size(); ++next) {
    const LayerKind& kind = LayerKindOf(model.layers(next));
    if (!kind.is_off_in_evaluation) return kind.calibrates();
  }
  return false;
}

}  // namespace

std::vector<int> WeightsOfMeanShare(const v1::Model& model, const ModelShape& shape,
                                    const NeuronGroups& groups) {
  std::vector<int> weights;
  for (int p = 0; p < static_cast<int>(shape.parameters.size()); ++p) {
    const NeuronGroups::Use& use = groups.uses[p];
    if (use.columns < 0 || !groups.IsCut(use.columns)) continue;
    if (!IsNormalised(model, shape.parameters[p].layer)) weights.push_back(p);
  }
  return weights;
}

}  // namespace tessera
