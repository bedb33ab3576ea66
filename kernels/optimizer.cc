#include "kernels/optimizer.h"

#include "common/rule/optimizer.h"

namespace tessera {

OptimizerNumbers NumbersOf(const v1::Optimizer& optimizer, const Update& update) {
  OptimizerNumbers numbers;
  numbers.update = update;
  if (optimizer.has_adam() || optimizer.has_adamw()) {
    numbers.adam = CoefficientsOf(AdamOptionsOf(optimizer), update);
  }
  return numbers;
}

}  // namespace tessera
