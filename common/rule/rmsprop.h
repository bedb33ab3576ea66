// RMSprop, as PyTorch's torch.optim.RMSprop, not centred:
//   g = u + weight_decay * w;   v = alpha v + (1 - alpha) g^2
//   m = momentum * m + g / (sqrt(v) + epsilon);   w -= learning_rate * m
#ifndef TESSERA_COMMON_RULE_RMSPROP_H_
#define TESSERA_COMMON_RULE_RMSPROP_H_

#include <memory>

#include "common/rule/rule.h"

namespace tessera {

struct RmsPropOptions {
  float learning_rate = 0;
  // alpha is in f64 for the sake of 1 - alpha, which is off by 1e-6 of itself at 0.99 where alpha was rounded to f32.
  double alpha = 0.99;
  // Where f32 would round it to 0 the smallest normal number stands in, so that 0 / 0 cannot occur.
  float epsilon = 1e-8f;
  float weight_decay = 0;
  float momentum = 0;

  float alpha_rest() const { return static_cast<float>(1 - alpha); }
};

// Keeps v, and m where momentum is not 0. A v below 0, which the mean of several replicas' v can be by a rounding,
// counts as 0.
std::unique_ptr<UpdateRule> MakeRmsProp(RmsPropOptions options);

}  // namespace tessera

#endif  // TESSERA_COMMON_RULE_RMSPROP_H_
