// The constants of (x - mean) / stddev, for all features together, for each channel, or for each feature.
#ifndef TESSERA_WORKER_DATA_NORMALIZATION_H_
#define TESSERA_WORKER_DATA_NORMALIZATION_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/data/table.h"

namespace tessera {

// What is subtracted from values and what they are divided by, in the units that the model sees: of u8 values after the
// division by 255, of others as they are.
struct Normalization {
  // One entry that holds for all features, or one for each feature. A number of entries in between is of channels:
  // entry
  // k is for the k-th of as many equal parts of a row.
  std::vector<double> mean = {0};
  std::vector<double> stddev = {1};
};

// `normalization` with an entry for each feature, if it has more than one.
Normalization ExpandChannels(const Normalization& normalization, int64_t features);
// The other way: one entry for each of `channels` parts of a row, if all entries of each part are equal; else as given.
Normalization JoinChannels(Normalization normalization, int64_t channels);

// The mean and the population standard deviation of each feature over the rows of `training`, which
// has at least one. A constant feature gets stddev 1, as does one whose stddev has no finite
// inverse in a float. The sums run in row order, feature by feature, so equal tables give equal
// bits. Codes of ValueSource::Read, where values are not held.
absl::StatusOr<Normalization> NormalizationOf(const Table& training);

}  // namespace tessera

#endif  // TESSERA_WORKER_DATA_NORMALIZATION_H_
