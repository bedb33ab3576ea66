// How large the parameters are that a job exchanges: a codec may leave those with few entries as they are
// (CodecTraits::parameter_entries_min).
#ifndef TESSERA_COMMON_METHOD_LARGEST_EXCHANGED_H_
#define TESSERA_COMMON_METHOD_LARGEST_EXCHANGED_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "common/method/recipe.h"
#include "proto/job.pb.h"

namespace tessera {

// The entries of the largest parameter that is exchanged. A core and its explorer are one vector. The codes are
// those of ShapeOf.
absl::StatusOr<int64_t> LargestExchanged(const v1::Model& model, const Recipe& recipe);

}  // namespace tessera

#endif  // TESSERA_COMMON_METHOD_LARGEST_EXCHANGED_H_
