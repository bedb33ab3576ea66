// Adagrad, as PyTorch's torch.optim.Adagrad without lr_decay:
//   g = u + weight_decay * w;   v += g^2;   w -= learning_rate * g / (sqrt(v) + epsilon)
#ifndef TESSERA_COMMON_RULE_ADAGRAD_H_
#define TESSERA_COMMON_RULE_ADAGRAD_H_

#include <memory>

#include "common/rule/rule.h"

namespace tessera {

struct AdagradOptions {
  float learning_rate = 0;
  // Where f32 would round it to 0 the smallest normal number stands in, so that 0 / 0 cannot occur.
  float epsilon = 1e-10f;
  float weight_decay = 0;
};

// Keeps one state array (v).
std::unique_ptr<UpdateRule> MakeAdagrad(AdagradOptions options);

}  // namespace tessera

#endif  // TESSERA_COMMON_RULE_ADAGRAD_H_
