// What evaluation of the whole network must make up for: it has all sites' neurons at once.
#ifndef TESSERA_COMMON_KEYSET_MEAN_SHARE_H_
#define TESSERA_COMMON_KEYSET_MEAN_SHARE_H_

#include <vector>

#include "common/keyset/subnet.h"
#include "common/layout/parameters.h"

namespace tessera {

// A neuron that is fed by a group that is cut sums over about as many times more inputs in the whole
// network as there are sites. A batch norm behind it undoes that by itself. Elsewhere evaluation
// multiplies the weighted sum, but not the bias, by the mean share, 1 / sites.
//
// Returns the weights of such sums, as indices into shape.parameters.
std::vector<int> WeightsOfMeanShare(const ModelShape& shape, const NeuronGroups& groups);

}  // namespace tessera

#endif  // TESSERA_COMMON_KEYSET_MEAN_SHARE_H_
