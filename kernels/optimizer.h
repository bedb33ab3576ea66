// A job's optimizer as a kernel: one update of arrays in a device's memory.
#ifndef TESSERA_KERNELS_OPTIMIZER_H_
#define TESSERA_KERNELS_OPTIMIZER_H_

#include <cstdint>

#include "kernels/bf16.h"
#include "kernels/optimizer_numbers.h"
#include "kernels/shape.h"
#include "proto/job.pb.h"

namespace tessera {

// What a step of `optimizer`, which names one of its kinds, reads for `update`.
OptimizerNumbers NumbersOf(const v1::Optimizer& optimizer, const Update& update);

// Made by VectorKernel::MakeOptimizer, whose backend outlives it. Keeps no state of its own: the
// arrays are the caller's. Queued like every kernel.
class OptimizerKernel {
 public:
  virtual ~OptimizerKernel() = default;

  // Moves the n values of w by update.scale * g, as the rule that common/rule/optimizer.h makes of
  // the same optimizer. `numbers`, of NumbersOf, are in the device's memory and read when the kernel
  // runs. `state` holds one array of n values for each of StateNames, in their order; they start at 0.
  // The pointers themselves are the host's and may be reused on return. Unless it is null, `rounded`
  // becomes what VectorKernel::Round makes of the new w, which spares another pass over it.
  virtual void Step(const OptimizerNumbers* numbers, int64_t n, const float* g, float* const* state,
                    float* w, Bf16* rounded) = 0;

  // Steps a weight [outputs, inputs] by the gradient dy^T x, which does not go to memory: x [rows, inputs], dy
  // [rows, outputs], sums in f32. `weight` moves, and `rounded` becomes what Step makes of it. False: nothing
  // is queued, as there is none for this optimizer, device, shape or alignment of the arrays, nothing else.
  virtual bool StepByProduct(const OptimizerNumbers* numbers, const LinearShape& shape,
                             const Bf16* x, const Bf16* dy, float* weight, Bf16* rounded) {
    return false;
  }
};

}  // namespace tessera

#endif  // TESSERA_KERNELS_OPTIMIZER_H_
