// cuDNN's calls that this project makes, as its manual has them: convolutions of f32, images and filters channels
// last, in f64 inside. As unhelpful as it may be: one algorithm of forward passes does not know images of fewer than 4
// channels, and backward passes do not know strides of more than 2, of which one says so only when it is to
// compute.
#if __has_include(<cudnn.h>)
#include <cudnn.h>

#include <cstdint>
#include <cstring>
#include <string>

#include "tests/kernels/cuda/emulation/convolve.h"
#include "tests/kernels/cuda/ptx/machine.h"

using tessera::ImageMap;
using tessera::cuda::ConvolutionPass;
using tessera::ptx::Machine;
using tessera::ptx::Stream;

namespace {

constexpr size_t kWorkspaceBytes = 1000;

void Require(bool holds, const char* what) {
  if (!holds) Machine::Refuse(std::string("cuDNN: ") + what);
}

struct Context {
  Stream* stream = nullptr;
};
struct Tensor {
  int n = 0, c = 0, h = 0, w = 0;
};
struct Convolution {
  int padding_y = 0, padding_x = 0, stride_y = 0, stride_x = 0, dilation_y = 0, dilation_x = 0;
  cudnnMathType_t math = CUDNN_DEFAULT_MATH;
  int groups = 1;
};

Context* Of(cudnnHandle_t handle) { return reinterpret_cast<Context*>(handle); }
Tensor* Of(cudnnTensorDescriptor_t tensor) { return reinterpret_cast<Tensor*>(tensor); }
Tensor* Of(cudnnFilterDescriptor_t filter) { return reinterpret_cast<Tensor*>(filter); }
Convolution* Of(cudnnConvolutionDescriptor_t convolution) {
  return reinterpret_cast<Convolution*>(convolution);
}

template <typename Descriptor, typename Made>
cudnnStatus_t Make(Descriptor* descriptor) {
  *descriptor = reinterpret_cast<Descriptor>(new Made);
  return CUDNN_STATUS_SUCCESS;
}

// The pass that descriptors describe, which must go together.
ConvolutionPass PassOf(ConvolutionPass::Kind kind, cudnnTensorDescriptor_t x_of,
                       cudnnFilterDescriptor_t weights_of, cudnnConvolutionDescriptor_t of,
                       cudnnTensorDescriptor_t y_of) {
  const Tensor &x = *Of(x_of), &weights = *Of(weights_of), &y = *Of(y_of);
  const Convolution& convolution = *Of(of);
  Require(x.n > 0 && weights.n > 0 && y.n > 0, "a descriptor that was not set");
  Require(x.n == y.n && x.c == weights.c * convolution.groups && y.c == weights.n,
          "descriptors that do not fit");
  const ImageMap map = tessera::MapOf(
      {x.c, x.h, x.w},
      {weights.h, weights.w, convolution.stride_y, convolution.stride_x, convolution.padding_y,
       convolution.padding_x, convolution.dilation_y, convolution.dilation_x},
      y.c, convolution.groups);
  Require(map.to.height == y.h && map.to.width == y.w, "a y that the window does not make");
  ConvolutionPass pass;
  pass.kind = kind;
  pass.tf32 = convolution.math == CUDNN_DEFAULT_MATH;
  pass.shape = {x.n, map};
  return pass;
}

bool IsKnown(const ConvolutionPass& pass) {
  return pass.shape.map.window.stride_y <= 2 && pass.shape.map.window.stride_x <= 2;
}

int64_t Bytes(const Tensor& tensor) {
  return int64_t{4} * tensor.n * tensor.c * tensor.h * tensor.w;
}

cudnnStatus_t Queue(cudnnHandle_t handle, ConvolutionPass pass, const void* alpha, const void* a,
                    int64_t a_bytes, const void* b, int64_t b_bytes, const void* beta, void* c,
                    int64_t c_bytes, void* workspace, size_t workspace_bytes) {
  const std::lock_guard<std::recursive_mutex> lock(Machine::Get().mutex);
  Require(workspace_bytes >= kWorkspaceBytes, "a workspace that is too small");
  Require(*static_cast<const float*>(alpha) == 1, "an alpha that is not played");
  for (const void* const address : {a, b, static_cast<const void*>(c)}) {
    Require(reinterpret_cast<uintptr_t>(address) % 16 == 0, "an array that is not aligned");
  }
  const float kept = *static_cast<const float*>(beta);
  Of(handle)->stream->Queue([=] {
    Machine& machine = Machine::Get();
    machine.Touch(a, a_bytes, false, "cuDNN");
    machine.Touch(b, b_bytes, false, "cuDNN");
    machine.Touch(workspace, kWorkspaceBytes, true, "cuDNN");
    if (kept != 0) machine.Touch(c, c_bytes, false, "cuDNN");
    machine.Touch(c, c_bytes, true, "cuDNN");
    std::memset(machine.memory.Reach(workspace), 0xff, kWorkspaceBytes);
    ConvolutionPass reached = pass;
    reached.a = reinterpret_cast<const float*>(machine.memory.Reach(a));
    reached.b = reinterpret_cast<const float*>(machine.memory.Reach(b));
    reached.beta = kept;
    reached.c = reinterpret_cast<float*>(machine.memory.Reach(c));
    ConvolveInF64(reached);
  });
  return CUDNN_STATUS_SUCCESS;
}

}  // namespace

extern "C" {

size_t cudnnGetVersion(void) { return CUDNN_VERSION; }
size_t cudnnGetCudartVersion(void) { return CUDART_VERSION; }
const char* cudnnGetErrorString(cudnnStatus_t) { return "an error"; }

cudnnStatus_t cudnnCreate(cudnnHandle_t* handle) { return Make<cudnnHandle_t, Context>(handle); }
cudnnStatus_t cudnnDestroy(cudnnHandle_t handle) {
  delete Of(handle);
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream) {
  Of(handle)->stream = reinterpret_cast<Stream*>(stream);
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnCreateTensorDescriptor(cudnnTensorDescriptor_t* tensor) {
  return Make<cudnnTensorDescriptor_t, Tensor>(tensor);
}
cudnnStatus_t cudnnDestroyTensorDescriptor(cudnnTensorDescriptor_t tensor) {
  delete Of(tensor);
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSetTensor4dDescriptor(cudnnTensorDescriptor_t tensor, cudnnTensorFormat_t format,
                                         cudnnDataType_t type, int n, int c, int h, int w) {
  Require(format == CUDNN_TENSOR_NHWC && type == CUDNN_DATA_FLOAT, "a tensor that is not played");
  *Of(tensor) = {n, c, h, w};
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnCreateFilterDescriptor(cudnnFilterDescriptor_t* filter) {
  return Make<cudnnFilterDescriptor_t, Tensor>(filter);
}
cudnnStatus_t cudnnDestroyFilterDescriptor(cudnnFilterDescriptor_t filter) {
  delete Of(filter);
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSetFilter4dDescriptor(cudnnFilterDescriptor_t filter, cudnnDataType_t type,
                                         cudnnTensorFormat_t format, int k, int c, int h, int w) {
  Require(format == CUDNN_TENSOR_NHWC && type == CUDNN_DATA_FLOAT, "a filter that is not played");
  *Of(filter) = {k, c, h, w};
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnCreateConvolutionDescriptor(cudnnConvolutionDescriptor_t* convolution) {
  return Make<cudnnConvolutionDescriptor_t, Convolution>(convolution);
}
cudnnStatus_t cudnnDestroyConvolutionDescriptor(cudnnConvolutionDescriptor_t convolution) {
  delete Of(convolution);
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSetConvolution2dDescriptor(cudnnConvolutionDescriptor_t convolution, int pad_h,
                                              int pad_w, int u, int v, int dilation_h,
                                              int dilation_w, cudnnConvolutionMode_t mode,
                                              cudnnDataType_t type) {
  Require(type == CUDNN_DATA_FLOAT, "a convolution that is not played");
  Require(mode == CUDNN_CROSS_CORRELATION, "a kernel that is turned round");
  *Of(convolution) = {pad_h, pad_w, u, v, dilation_h, dilation_w, CUDNN_DEFAULT_MATH, 1};
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSetConvolutionGroupCount(cudnnConvolutionDescriptor_t convolution, int groups) {
  Require(groups > 0, "a number of groups");
  Of(convolution)->groups = groups;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSetConvolutionMathType(cudnnConvolutionDescriptor_t convolution,
                                          cudnnMathType_t math) {
  Require(math == CUDNN_DEFAULT_MATH || math == CUDNN_FMA_MATH, "a math type that is not played");
  Of(convolution)->math = math;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnGetConvolutionForwardWorkspaceSize(cudnnHandle_t, cudnnTensorDescriptor_t x,
                                                      cudnnFilterDescriptor_t weights,
                                                      cudnnConvolutionDescriptor_t convolution,
                                                      cudnnTensorDescriptor_t y,
                                                      cudnnConvolutionFwdAlgo_t algorithm,
                                                      size_t* bytes) {
  const bool precomputes = algorithm == CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM;
  Require(precomputes || algorithm == CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM,
          "an algorithm that is not played");
  PassOf(ConvolutionPass::Kind::kForward, x, weights, convolution, y);
  if (precomputes && Of(x)->c < 4) return CUDNN_STATUS_NOT_SUPPORTED;
  *bytes = kWorkspaceBytes;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnConvolutionForward(cudnnHandle_t handle, const void* alpha,
                                      cudnnTensorDescriptor_t x, const void* x_values,
                                      cudnnFilterDescriptor_t weights, const void* values,
                                      cudnnConvolutionDescriptor_t convolution,
                                      cudnnConvolutionFwdAlgo_t algorithm, void* workspace,
                                      size_t bytes, const void* beta, cudnnTensorDescriptor_t y,
                                      void* y_values) {
  // It named a workspace for these, and cannot do them.
  const bool precomputes = algorithm == CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM;
  if (precomputes && Of(x)->c % 4 != 0) return CUDNN_STATUS_NOT_SUPPORTED;
  return Queue(handle, PassOf(ConvolutionPass::Kind::kForward, x, weights, convolution, y), alpha,
               x_values, Bytes(*Of(x)), values, Bytes(*Of(weights)), beta, y_values, Bytes(*Of(y)),
               workspace, bytes);
}

cudnnStatus_t cudnnGetConvolutionBackwardFilterWorkspaceSize(
    cudnnHandle_t, cudnnTensorDescriptor_t x, cudnnTensorDescriptor_t dy,
    cudnnConvolutionDescriptor_t convolution, cudnnFilterDescriptor_t dweights,
    cudnnConvolutionBwdFilterAlgo_t algorithm, size_t* bytes) {
  Require(algorithm == CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1, "an algorithm that is not played");
  const auto pass = PassOf(ConvolutionPass::Kind::kWeightGradient, x, dweights, convolution, dy);
  if (!IsKnown(pass)) return CUDNN_STATUS_NOT_SUPPORTED_SHAPE;
  *bytes = kWorkspaceBytes;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnConvolutionBackwardFilter(cudnnHandle_t handle, const void* alpha,
                                             cudnnTensorDescriptor_t x, const void* x_values,
                                             cudnnTensorDescriptor_t dy, const void* dy_values,
                                             cudnnConvolutionDescriptor_t convolution,
                                             cudnnConvolutionBwdFilterAlgo_t, void* workspace,
                                             size_t bytes, const void* beta,
                                             cudnnFilterDescriptor_t dweights, void* values) {
  return Queue(handle, PassOf(ConvolutionPass::Kind::kWeightGradient, x, dweights, convolution, dy),
               alpha, x_values, Bytes(*Of(x)), dy_values, Bytes(*Of(dy)), beta, values,
               Bytes(*Of(dweights)), workspace, bytes);
}

cudnnStatus_t cudnnGetConvolutionBackwardDataWorkspaceSize(
    cudnnHandle_t, cudnnFilterDescriptor_t weights, cudnnTensorDescriptor_t dy,
    cudnnConvolutionDescriptor_t convolution, cudnnTensorDescriptor_t dx,
    cudnnConvolutionBwdDataAlgo_t algorithm, size_t* bytes) {
  Require(algorithm == CUDNN_CONVOLUTION_BWD_DATA_ALGO_1, "an algorithm that is not played");
  PassOf(ConvolutionPass::Kind::kInputGradient, dx, weights, convolution, dy);
  *bytes = kWorkspaceBytes;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnConvolutionBackwardData(cudnnHandle_t handle, const void* alpha,
                                           cudnnFilterDescriptor_t weights, const void* values,
                                           cudnnTensorDescriptor_t dy, const void* dy_values,
                                           cudnnConvolutionDescriptor_t convolution,
                                           cudnnConvolutionBwdDataAlgo_t, void* workspace,
                                           size_t bytes, const void* beta,
                                           cudnnTensorDescriptor_t dx, void* dx_values) {
  const auto pass = PassOf(ConvolutionPass::Kind::kInputGradient, dx, weights, convolution, dy);
  if (!IsKnown(pass)) return CUDNN_STATUS_NOT_SUPPORTED;
  return Queue(handle, pass, alpha, dy_values, Bytes(*Of(dy)), values, Bytes(*Of(weights)), beta,
               dx_values, Bytes(*Of(dx)), workspace, bytes);
}

}  // extern "C"

#endif
