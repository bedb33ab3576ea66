// No consistency: every push is its own update, at once, and nobody waits (async SGD).
//
//   OnPush     weight lambda(tau), commits
//   MayRead    always
//
// tau = version when applied - version pulled.
#ifndef TESSERA_COMMON_CONSISTENCY_NONE_H_
#define TESSERA_COMMON_CONSISTENCY_NONE_H_

#include <memory>

#include "common/consistency/policy.h"
#include "common/consistency/staleness_weight.h"

namespace tessera {

std::unique_ptr<ConsistencyPolicy> MakeNone(StalenessWeight weight);
// Weighs every push by `scale`.
std::unique_ptr<ConsistencyPolicy> MakeNone(float scale);

}  // namespace tessera

#endif  // TESSERA_COMMON_CONSISTENCY_NONE_H_
