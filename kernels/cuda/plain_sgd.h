// Plain SGD of one entry, for every kernel that steps by it: one expression, the same bits.
#ifndef TESSERA_KERNELS_CUDA_PLAIN_SGD_H_
#define TESSERA_KERNELS_CUDA_PLAIN_SGD_H_

#include "common/base/host_device.h"
#include "kernels/optimizer_numbers.h"

namespace tessera::cuda {

// What all entries share under a rule with a learning rate.
struct Rates {
  float scale, eta;
};

TESSERA_HOST_DEVICE inline Rates RatesOf(const OptimizerNumbers& numbers, float learning_rate) {
  return {numbers.update.scale, learning_rate * numbers.update.rate};
}

TESSERA_HOST_DEVICE inline float PlainSgd(const Rates& of, float decay, float gradient, float w) {
  const float g = of.scale * gradient + decay * w;
  return w - of.eta * g;
}

}  // namespace tessera::cuda

#endif  // TESSERA_KERNELS_CUDA_PLAIN_SGD_H_
