#include "kernels/cuda/linear.h"

#include "kernels/cuda/column_sums.h"
#include "kernels/cuda/linear_kernels.h"

namespace tessera {

template <typename T>
void CudaLinear<T>::Zero(float* values, int64_t size) {
  device_.Zero(cuda::Stream::kCompute, values, size * static_cast<int64_t>(sizeof(float)));
}

template <typename T>
void CudaLinear<T>::Forward(const LinearShape& shape, const T* x, const T* weight,
                            const float* bias, float* y) {
  if (shape.rows == 0 || shape.outputs == 0) return;
  // The bias is written first, and the product is added on top of it.
  if (bias != nullptr) {
    cuda::BiasOp op;
    op.bias = bias;
    op.out = y;
    MapColumns({shape.rows, shape.outputs}, op, &device_);
  }
  if (shape.inputs == 0) {
    // A product of no terms is 0, which cuBLAS would refuse.
    if (bias == nullptr) Zero(y, shape.rows * shape.outputs);
    return;
  }
  device_.Multiply({factors_, shape.rows, shape.outputs, shape.inputs, x, false, weight, true,
                    bias == nullptr ? 0.0f : 1.0f, y});
}

template <typename T>
void CudaLinear<T>::WeightGradient(const LinearShape& shape, const T* x, const T* dy,
                                   WriteMode mode, float* dweight) {
  if (shape.inputs == 0 || shape.outputs == 0) return;
  const bool adds = mode == WriteMode::kAdd;
  if (shape.rows == 0) {
    if (!adds) Zero(dweight, shape.outputs * shape.inputs);
    return;
  }
  device_.Multiply({factors_, shape.outputs, shape.inputs, shape.rows, dy, true, x, false,
                    adds ? 1.0f : 0.0f, dweight});
}

template <typename T>
void CudaLinear<T>::InputGradient(const LinearShape& shape, const T* dy, const T* weight,
                                  float* dx) {
  if (shape.rows == 0 || shape.inputs == 0) return;
  if (shape.outputs == 0) return Zero(dx, shape.rows * shape.inputs);
  device_.Multiply(
      {factors_, shape.rows, shape.inputs, shape.outputs, dy, false, weight, false, 0.0f, dx});
}

template class CudaLinear<float>;
template class CudaLinear<Bf16>;

}  // namespace tessera
