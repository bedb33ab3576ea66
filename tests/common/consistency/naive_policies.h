// The policies once more, written for the reader and not for speed: each answer is computed from
// the whole history.
#ifndef TESSERA_TESTS_COMMON_CONSISTENCY_NAIVE_POLICIES_H_
#define TESSERA_TESTS_COMMON_CONSISTENCY_NAIVE_POLICIES_H_

#include <cstdint>
#include <memory>

#include "absl/time/time.h"
#include "common/consistency/policy.h"
#include "common/consistency/staleness_weight.h"

namespace tessera {

// Searches its lists at every question.
std::unique_ptr<ConsistencyPolicy> NaiveBarrier();
std::unique_ptr<ConsistencyPolicy> NaiveSoftsync(int64_t pushes, StalenessWeight weight);
std::unique_ptr<ConsistencyPolicy> NaiveSsp(int64_t bound, float weight);
std::unique_ptr<ConsistencyPolicy> NaiveQuorum(int64_t pushes, absl::Duration grace);

}  // namespace tessera

#endif  // TESSERA_TESTS_COMMON_CONSISTENCY_NAIVE_POLICIES_H_
