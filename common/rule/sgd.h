// SGD with momentum and weight decay, as PyTorch's torch.optim.SGD without dampening:
//   g = u + weight_decay * w;   m = momentum * m + g;   w -= learning_rate * m
// With nesterov:                                        w -= learning_rate * (g + momentum * m)
// Nesterov without decay is DiLoCo's outer optimizer too (Douillard et al., arXiv 2311.08105).
#ifndef TESSERA_COMMON_RULE_SGD_H_
#define TESSERA_COMMON_RULE_SGD_H_

#include <memory>

#include "common/rule/rule.h"

namespace tessera {

struct SgdOptions {
  float learning_rate = 0;
  float momentum = 0;
  float weight_decay = 0;
  bool nesterov = false;
};

// Keeps one state array (m) where momentum is not 0, else none: then nesterov makes no difference.
std::unique_ptr<UpdateRule> MakeSgd(SgdOptions options);

}  // namespace tessera

#endif  // TESSERA_COMMON_RULE_SGD_H_
