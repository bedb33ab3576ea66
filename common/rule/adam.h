// Adam and AdamW, as PyTorch's torch.optim.Adam and AdamW without amsgrad. t is Update::number:
//   Adam    g = u + weight_decay * w
//   AdamW   g = u;   w -= learning_rate * weight_decay * w
//   m = beta1 m + (1 - beta1) g;   v = beta2 v + (1 - beta2) g^2
//   w -= learning_rate * (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + epsilon)
#ifndef TESSERA_COMMON_RULE_ADAM_H_
#define TESSERA_COMMON_RULE_ADAM_H_

#include <memory>

#include "common/rule/rule.h"

namespace tessera {

// Numbers are in f64: 1 - beta2 of a beta2 that was rounded to f32 is off by 5e-5 of itself at 0.999.
struct AdamOptions {
  double learning_rate = 0;
  double beta1 = 0.9;
  double beta2 = 0.999;
  // Where f32 would round it to 0 the smallest normal number stands in, so that 0 / 0 cannot occur.
  double epsilon = 1e-8;
  double weight_decay = 0;
  // Whether it is AdamW.
  bool decoupled = false;
};

// One update's constants, rounded once. Shared with the devices' own kernels.
struct AdamCoefficients {
  float scale = 0;
  float coupled_decay = 0;    // of w, into g
  float decoupled_decay = 0;  // of w, off w
  float beta1 = 0;
  float beta1_rest = 0;  // 1 - beta1
  float beta2 = 0;
  float beta2_rest = 0;
  float step_size = 0;   // learning rate / (1 - beta1^t)
  float root_scale = 0;  // 1 / sqrt(1 - beta2^t)
  float epsilon = 0;
};
AdamCoefficients CoefficientsOf(const AdamOptions& options, const Update& update);

// Keeps two state arrays: m, v. A v below 0, which the mean of several replicas' v can be by a
// rounding, counts as 0.
std::unique_ptr<UpdateRule> MakeAdam(AdamOptions options);

}  // namespace tessera

#endif  // TESSERA_COMMON_RULE_ADAM_H_
