// The constants of (x - mean) / stddev, for all features together or for each.
#ifndef TESSERA_WORKER_DATA_NORMALIZATION_H_
#define TESSERA_WORKER_DATA_NORMALIZATION_H_

#include <vector>

#include "worker/data/table.h"

namespace tessera {

// In the units that the model sees: of u8 values after the division by 255, of others as they are.
struct Normalization {
  // One entry that holds for all features, or one for each feature.
  std::vector<double> mean = {0};
  std::vector<double> stddev = {1};
};

// The mean and the population standard deviation of each feature over the rows of `training`, which
// has at least one. A constant feature gets stddev 1, as does one whose stddev has no finite
// inverse in a float. The sums run in row order, feature by feature, so equal tables give equal
// bits.
Normalization NormalizationOf(const Table& training);

}  // namespace tessera

#endif  // TESSERA_WORKER_DATA_NORMALIZATION_H_
