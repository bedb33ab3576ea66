#include "common/keyset/mean_share.h"

namespace tessera {
namespace {

// Dropout does nothing in evaluation.
bool IsNormalised(const v1::Model& model, int linear) {
  int next = linear + 1;
  while (next < model.layers_size() && model.layers(next).has_dropout()) ++next;
  return next < model.layers_size() && model.layers(next).has_batch_norm();
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
