#include "kernels/cuda/response_norm.h"

#include "kernels/cuda/response_norm_kernels.h"

namespace tessera {
namespace {

cuda::ResponseArrays ArraysOf(const MatrixShape& shape, const ResponseWindow& window) {
  cuda::ResponseArrays arrays;
  arrays.n = shape.size();
  arrays.channels = shape.columns;
  arrays.front = window.front();
  arrays.behind = window.behind();
  // alpha / size, as in Krizhevsky et al. 2012 and PyTorch.
  arrays.share = static_cast<float>(window.alpha / static_cast<double>(window.size));
  arrays.k = static_cast<float>(window.k);
  arrays.beta = window.beta;
  return arrays;
}

}  // namespace

void CudaResponseNorm::Forward(const MatrixShape& shape, const ResponseWindow& window,
                               const float* x, float* y) {
  const cuda::ResponseForward kernel{ArraysOf(shape, window), x, y};
  device_.Launch(kernel.blocks(), kernel);
}

void CudaResponseNorm::Backward(const MatrixShape& shape, const ResponseWindow& window,
                                const float* x, const float* dy, float* dx) {
  float* const terms = static_cast<float*>(scratch_.Of(ScratchBytes(shape)));
  if (shape.size() == 0 || terms == nullptr) return;
  const cuda::ResponseArrays arrays = ArraysOf(shape, window);
  // The gradient of a channel sums a term of each channel in its window, so that all terms are computed first.
  const cuda::ResponseTerms first{arrays, x, dy, terms};
  device_.Launch(first.blocks(), first);
  const auto slope =
      static_cast<float>(2 * window.alpha * window.beta / static_cast<double>(window.size));
  const cuda::ResponseBackward second{arrays, slope, x, dy, terms, dx};
  device_.Launch(second.blocks(), second);
}

}  // namespace tessera
