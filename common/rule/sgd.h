// SGD with momentum and weight decay, as PyTorch's torch.optim.SGD without dampening:
//   g = u + weight_decay * w;   m = momentum * m + g;   w -= learning_rate * m
#ifndef TESSERA_COMMON_RULE_SGD_H_
#define TESSERA_COMMON_RULE_SGD_H_

#include <memory>

#include "common/rule/rule.h"

namespace tessera {

struct SgdOptions {
  float learning_rate = 0;
  float momentum = 0;
  float weight_decay = 0;
};

// Keeps one state array (m) where momentum is not 0, else none.
std::unique_ptr<UpdateRule> MakeSgd(SgdOptions options);

}  // namespace tessera

#endif  // TESSERA_COMMON_RULE_SGD_H_
