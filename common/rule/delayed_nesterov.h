// Delayed Nesterov: the outer optimizer of asynchronous DiLoCo.  Liu et al., arXiv 2401.09135.
// Each update brings one worker's u; t is Update::number:
//   buffer += u
//   every N-th t   m = mu m + buffer / N;   w -= eta ((1 - c N + c) mu m + u / N);   buffer = 0
//   any other      w -= eta (c mu m + u / N)
// u is before minus after, so it points uphill, as a gradient does (common/rule/negated.h).
#ifndef TESSERA_COMMON_RULE_DELAYED_NESTEROV_H_
#define TESSERA_COMMON_RULE_DELAYED_NESTEROV_H_

#include <cstdint>
#include <memory>

#include "common/rule/rule.h"

namespace tessera {

struct DelayedNesterovOptions {
  float learning_rate = 0;  // eta
  float momentum = 0;       // mu
  // How much of the momentum's step each update takes ahead of its time.
  float ahead = 0;  // c
  // Updates per momentum step, at least 1. With 1 (and c = 0) it is the outer optimizer of
  // synchronous DiLoCo (common/rule/sgd.h).
  int64_t interval = 1;  // N
};

// Keeps two state arrays (m, buffer) where mu is not 0, else none.
std::unique_ptr<UpdateRule> MakeDelayedNesterov(DelayedNesterovOptions options);

}  // namespace tessera

#endif  // TESSERA_COMMON_RULE_DELAYED_NESTEROV_H_
