// A policy whose pushes weigh by the examples that they were computed from, where members have minibatches of different
// sizes and an update is no mean over all of them.
//
//   weight of a push   the policy's own times examples / whole, at most kExampleWeightMost
//
// Every example then moves the parameters as far, whoever computed it: a slow member's small minibatch, whose gradient
// is noisy, moves them less. A push that tells no examples counts as one example.
#ifndef TESSERA_COMMON_CONSISTENCY_EXAMPLE_WEIGHT_H_
#define TESSERA_COMMON_CONSISTENCY_EXAMPLE_WEIGHT_H_

#include <cstdint>
#include <memory>

#include "common/consistency/policy.h"

namespace tessera {

// No member has more of `whole` (kBatchMost in common/method/train_rows.h), whatever it says.
constexpr double kExampleWeightMost = 4;

// `whole`, at least 1: the examples of a push that weighs what `policy` says.
std::unique_ptr<ConsistencyPolicy> MakeExampleWeighted(std::unique_ptr<ConsistencyPolicy> policy,
                                                       uint64_t whole);

}  // namespace tessera

#endif  // TESSERA_COMMON_CONSISTENCY_EXAMPLE_WEIGHT_H_
