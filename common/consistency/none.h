// No consistency: every push is its own update, at once, and nobody waits (async SGD).
//
//   OnPush     weight lambda(staleness), commits
//   MayRead    always
//
// staleness = version when applied - version pulled.
#ifndef TESSERA_COMMON_CONSISTENCY_NONE_H_
#define TESSERA_COMMON_CONSISTENCY_NONE_H_

#include <memory>

#include "common/consistency/policy.h"

namespace tessera {

// Weighs every push by `scale`.
std::unique_ptr<ConsistencyPolicy> MakeNone(float scale);

}  // namespace tessera

#endif  // TESSERA_COMMON_CONSISTENCY_NONE_H_
