// What evaluation of the whole network must make up for: it has all sites' neurons at once.
#ifndef TESSERA_COMMON_KEYSET_MEAN_SHARE_H_
#define TESSERA_COMMON_KEYSET_MEAN_SHARE_H_

#include <cstdint>
#include <vector>

#include "common/keyset/subnet.h"
#include "common/layout/parameters.h"

namespace tessera {

// A neuron that is fed by a group that is cut sums over about as many times more inputs in the whole
// network as there are sites. A batch norm behind it undoes that by itself. Elsewhere evaluation
// multiplies the weighted sum, but not the bias, by the mean share, 1 / sites.
//
// Returns the weights of such sums, as indices into shape.parameters; none in a job of tensors, whose workers evaluate
// by themselves.
std::vector<int> WeightsOfMeanShare(const ModelShape& shape, const NeuronGroups& groups);

// What values of the whole network are multiplied by, one factor for each parameter, to begin a job of so many sites
// with: evaluation has the network's values then. Empty: none is multiplied.
std::vector<float> FactorsOfWhole(const ModelShape& shape, const NeuronGroups& groups,
                                  int64_t sites);

// The layers that make units which are cut and which nothing behind them normalises, as indices into
// ModelShape::layers.
std::vector<int> CutWithoutNorm(const ModelShape& shape, const NeuronGroups& groups);

}  // namespace tessera

#endif  // TESSERA_COMMON_KEYSET_MEAN_SHARE_H_
