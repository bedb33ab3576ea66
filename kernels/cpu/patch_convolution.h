// Convolutions as products of matrices, for processors on which those are faster than oneDNN's convolutions.
//
// What each place of y sees of x is laid out as a row, a patch, and patches are multiplied by the weights:
//
//   y  [places, channels of y] = patches of x [places, window * channels of x]  times W^T
//   dW [channels of y, window * channels of x] = dy^T  times patches of x
//   dx [places, channels of x] = patches of dy, by the window turned round,     times W turned
//
// A few patches at a time, which lie in the second-level cache (Chellapilla, Puri, Simard: High Performance
// Convolutional Neural Networks for Document Processing, 2006).
#ifndef TESSERA_KERNELS_CPU_PATCH_CONVOLUTION_H_
#define TESSERA_KERNELS_CPU_PATCH_CONVOLUTION_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "kernels/convolution.h"
#include "kernels/cpu/threads.h"

namespace tessera {

// For channels in one group; the gradient of the inputs for windows that do not stride.
class CpuPatchConvolution final : public ConvolutionKernel<float> {
 public:
  explicit CpuPatchConvolution(const CpuThreads& threads) : threads_(threads) {}

  void Forward(const ImagesShape& shape, const float* x, const float* weight, const float* bias,
               float* y) override;
  void WeightGradient(const ImagesShape& shape, const float* x, const float* dy, WriteMode mode,
                      float* dweight) override;
  void InputGradient(const ImagesShape& shape, const float* dy, const float* weight,
                     float* dx) override;
  int64_t ScratchBytes(const ImagesShape&) const override { return 0; }

  // Takes the first failure since the last call.
  absl::Status TakeStatus();

 private:
  // The places from `begin` on, of which there are `count`, and their patches, one after the other.
  struct Block {
    int64_t begin;
    int64_t count;
    const float* patches;
  };

  // Calls f(block) for all places of `to`, block by block.
  template <typename F>
  void ForEachBlock(const ImagesShape& shape, const float* x, const F& f);
  // c [rows, columns] = a b, on top of what is there where `adds`. a is [rows, depth], or [depth, rows] if
  // `a_is_turned`; likewise b.
  void Multiply(int64_t rows, int64_t columns, int64_t depth, const float* a, bool a_is_turned,
                const float* b, bool b_is_turned, bool adds, float* c);

  const CpuThreads threads_;
  // Both grow to what is needed and stay.
  std::vector<float> patches_;
  std::vector<float> weights_;  // with the window's places in front of the channels
  absl::Status status_;
};

}  // namespace tessera

#endif  // TESSERA_KERNELS_CPU_PATCH_CONVOLUTION_H_
