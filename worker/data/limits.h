// What a data file may ask for. A message about a file beyond a limit names the limit.
#ifndef TESSERA_WORKER_DATA_LIMITS_H_
#define TESSERA_WORKER_DATA_LIMITS_H_

#include <cstdint>

namespace tessera {

// A row's number fits in 31 bits.
constexpr int64_t kRowsMax = (int64_t{1} << 31) - 1;
// The most that model.input allows in job.proto.
constexpr int64_t kFeaturesMax = int64_t{1} << 24;
// Values and labels of the training and the test set together, where neither the job nor the machine says how much
// memory there is.
constexpr int64_t kDatasetBytesMax = int64_t{64} << 30;
// Text of one number, its separator included. A line may hold this much for each feature and class.
constexpr int64_t kFieldBytesMax = 64;
// What a line may hold besides, for comments and white space.
constexpr int64_t kLineBytesBase = 4096;
constexpr int64_t kIdxDimensionsMax = 8;
// NumPy itself has no more, and writes headers of a few hundred bytes.
constexpr int64_t kNpyDimensionsMax = 64;
constexpr int64_t kNpyHeaderBytesMax = int64_t{64} << 10;
// Deflate cannot expand more than this.
constexpr int64_t kGzipExpansionMax = 1032;

// Rows of a sparse format that need not stay sparse do so from this width on, and where fewer values
// than one in so many are stored. Dense products are as fast at one in four.
constexpr int64_t kSparseFeaturesMin = 512;
constexpr int64_t kSparseShareInverse = 8;

static_assert(kFeaturesMax * 2 * kFieldBytesMax <= kDatasetBytesMax, "a line fits in memory");

}  // namespace tessera

#endif  // TESSERA_WORKER_DATA_LIMITS_H_
