// A step of plain SGD by a weight's gradient dy^T x that does not go to memory: product, update and rounding in one
// kernel, which moves 10 bytes a weight.
#ifndef TESSERA_KERNELS_CUDA_WEIGHT_STEP_H_
#define TESSERA_KERNELS_CUDA_WEIGHT_STEP_H_

#include <cstdint>
#include <initializer_list>

#include "kernels/bf16.h"
#include "kernels/optimizer_numbers.h"

namespace tessera::cuda {

struct WeightStep {
  int64_t rows = 0;
  int64_t inputs = 0;
  int64_t outputs = 0;
  const Bf16* x = nullptr;                    // [rows, inputs]
  const Bf16* dy = nullptr;                   // [rows, outputs]
  float* weight = nullptr;                    // [outputs, inputs]
  Bf16* rounded = nullptr;                    // the same
  const OptimizerNumbers* numbers = nullptr;  // in device memory, read when the kernel runs
  float learning_rate = 0;
  float decay = 0;
};

// Whether the kernel can run: its products are Hopper's (wgmma), which neither an older nor a newer generation
// has.
constexpr bool StepsWeights(int major, int minor) { return major == 9 && minor == 0; }

// What TMA asks of arrays: addresses and rows of whole 16 bytes. Extents are coordinates of 32 bits there.
inline bool FitsTma(const WeightStep& step) {
  constexpr int64_t kExtentMax = int64_t{1} << 30;
  for (const int64_t extent : {step.rows, step.inputs, step.outputs}) {
    if (extent < 1 || extent > kExtentMax) return false;
  }
  if (step.inputs % 8 != 0 || step.outputs % 8 != 0) return false;
  for (const void* const address :
       {static_cast<const void*>(step.x), static_cast<const void*>(step.dy),
        static_cast<const void*>(step.weight), static_cast<const void*>(step.rounded)}) {
    if (address == nullptr || reinterpret_cast<uintptr_t>(address) % 16 != 0) return false;
  }
  return true;
}

// Queues a step that FitsTma on a stream of the runtime. `encode` is the driver's cuTensorMapEncodeTiled. Returns the
// runtime's error, 0 for none. Defined in weight_step.cu.
int LaunchWeightStep(void* stream, void* encode, int multiprocessors, const WeightStep& step);

}  // namespace tessera::cuda

#endif  // TESSERA_KERNELS_CUDA_WEIGHT_STEP_H_
