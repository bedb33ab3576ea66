#include "kernels/cpu/convolution_choice.h"

namespace tessera {
namespace {

// What is faster without AVX-512, by bench/step/convolution on an EPYC with AVX2 (docs/design/network.md). Products
// whose rows are short waste time, as patches of few channels do; oneDNN's gradient of the inputs is at its best where
// images are large.
bool ForwardIsProduct(const ImageMap& map) { return map.groups == 1 && map.from.channels >= 64; }

bool WeightGradientIsProduct(const ImageMap& map) {
  return map.groups == 1 && map.from.channels >= 32;
}

bool InputGradientIsProduct(const ImageMap& map) {
  const Window& window = map.window;
  return map.groups == 1 && window.stride_y * window.stride_x == 1 && map.to.channels >= 64 &&
         (window.size() == 1 || map.from.positions() < 64);
}

}  // namespace

ConvolutionKernel<float>& CpuConvolutionChoice::Choose(bool patches_are_faster) {
  if (patches_are_faster && !has_avx512_) return patches_;
  return own_;
}

void CpuConvolutionChoice::Forward(const ImagesShape& shape, const float* x, const float* weight,
                                   const float* bias, float* y) {
  Choose(ForwardIsProduct(shape.map)).Forward(shape, x, weight, bias, y);
}

void CpuConvolutionChoice::WeightGradient(const ImagesShape& shape, const float* x, const float* dy,
                                          WriteMode mode, float* dweight) {
  Choose(WeightGradientIsProduct(shape.map)).WeightGradient(shape, x, dy, mode, dweight);
}

void CpuConvolutionChoice::InputGradient(const ImagesShape& shape, const float* dy,
                                         const float* weight, float* dx) {
  Choose(InputGradientIsProduct(shape.map)).InputGradient(shape, dy, weight, dx);
}

absl::Status CpuConvolutionChoice::TakeStatus() {
  absl::Status status = own_.TakeStatus();
  status.Update(patches_.TakeStatus());
  return status;
}

}  // namespace tessera
