// The limit that convolutions are measured against: oneDNN's, with images and weights in whatever
// order it likes best, and put there beforehand.
#ifndef TESSERA_BENCH_STEP_FREE_CONVOLUTION_H_
#define TESSERA_BENCH_STEP_FREE_CONVOLUTION_H_

#include <memory>
#include <vector>

#include "kernels/shape.h"

namespace tessera {

// A convolution in f32. Values go in and out as ConvolutionKernel has them.
class FreeConvolution {
 public:
  FreeConvolution(const ImagesShape& shape, int threads);
  ~FreeConvolution();

  void SetInputs(const std::vector<float>& x, const std::vector<float>& w,
                 const std::vector<float>& dy);
  void Forward();
  void WeightGradient();
  void InputGradient();
  std::vector<float> y() const;
  std::vector<float> dw() const;
  std::vector<float> dx() const;

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
  const int threads_;
};

}  // namespace tessera

#endif  // TESSERA_BENCH_STEP_FREE_CONVOLUTION_H_
