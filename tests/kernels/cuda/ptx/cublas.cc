// cuBLAS's calls that this project makes, as its manual has them: column-major, in f64 inside.
#include <cublas_v2.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "tests/kernels/cuda/ptx/machine.h"

using tessera::ptx::Machine;
using tessera::ptx::Stream;

namespace {

struct Handle {
  Stream* stream = nullptr;
  int64_t workspace = 0;
};
Handle* Of(cublasHandle_t handle) { return reinterpret_cast<Handle*>(handle); }

struct Matrix {
  const void* values;
  cudaDataType_t type;
  bool tf32;
  int64_t lead;  // from one column to the next
  bool transposed;

  int64_t bytes() const { return type == CUDA_R_16BF ? 2 : 4; }
  double At(int64_t row, int64_t column) const {
    const int64_t i = transposed ? column + row * lead : row + column * lead;
    uint32_t bits = 0;
    if (type == CUDA_R_16BF) {
      uint16_t upper;
      std::memcpy(&upper, Machine::Get().memory.Reach(values) + 2 * i, 2);
      bits = uint32_t{upper} << 16;
    } else {
      std::memcpy(&bits, Machine::Get().memory.Reach(values) + 4 * i, 4);
      if (tf32) bits &= ~0x1fffu;  // the coarsest that 10 bits can be
    }
    float value;
    std::memcpy(&value, &bits, 4);
    return value;
  }
  // Those of it that are read, of its stored form.
  void Read(int64_t rows, int64_t columns) const {
    const int64_t length = transposed ? columns : rows, count = transposed ? rows : columns;
    for (int64_t k = 0; k < count; ++k) {
      Machine::Get().Touch(static_cast<const char*>(values) + k * lead * bytes(), length * bytes(),
                           false, "cuBLAS");
    }
  }
};

void Require(bool holds, const char* what) {
  if (!holds) Machine::Refuse(std::string("cublasGemmEx: ") + what);
}

}  // namespace

extern "C" {

cublasStatus_t cublasCreate_v2(cublasHandle_t* handle) {
  *handle = reinterpret_cast<cublasHandle_t>(new Handle);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasDestroy_v2(cublasHandle_t handle) {
  delete Of(handle);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetStream_v2(cublasHandle_t handle, cudaStream_t stream) {
  Of(handle)->stream = reinterpret_cast<Stream*>(stream);
  Of(handle)->workspace = 0;  // Its own again, as the manual says.
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetWorkspace_v2(cublasHandle_t handle, void* workspace, size_t bytes) {
  Require(Machine::Get().memory.Holds(workspace), "a workspace that is no memory of the device");
  Of(handle)->workspace = static_cast<int64_t>(bytes);
  return CUBLAS_STATUS_SUCCESS;
}
const char* cublasGetStatusString(cublasStatus_t) { return "an error"; }

cublasStatus_t cublasGemmEx_64(cublasHandle_t handle, cublasOperation_t transa,
                               cublasOperation_t transb, int64_t m, int64_t n, int64_t k,
                               const void* alpha, const void* a, cudaDataType_t a_type, int64_t lda,
                               const void* b, cudaDataType_t b_type, int64_t ldb, const void* beta,
                               void* c, cudaDataType_t c_type, int64_t ldc,
                               cublasComputeType_t compute, cublasGemmAlgo_t) {
  const std::lock_guard<std::recursive_mutex> lock(Machine::Get().mutex);
  Require(m > 0 && n > 0 && k > 0, "an extent of 0");
  Require(lda >= (transa == CUBLAS_OP_N ? m : k), "lda is too small");
  Require(ldb >= (transb == CUBLAS_OP_N ? k : n), "ldb is too small");
  Require(ldc >= m, "ldc is too small");
  Require(
      c_type == CUDA_R_32F && a_type == b_type && (a_type == CUDA_R_32F || a_type == CUDA_R_16BF),
      "types that do not go together");
  const bool tf32 = compute == CUBLAS_COMPUTE_32F_FAST_TF32;
  Require(compute == CUBLAS_COMPUTE_32F || (tf32 && a_type == CUDA_R_32F),
          "a computation that is not for these types");
  Require(Of(handle)->workspace > 0, "no workspace of its own: it would allocate one");
  const Matrix first{a, a_type, tf32, lda, transa == CUBLAS_OP_T};
  const Matrix second{b, b_type, tf32, ldb, transb == CUBLAS_OP_T};
  const float factor = *static_cast<const float*>(alpha), kept = *static_cast<const float*>(beta);
  Of(handle)->stream->Queue([=] {
    first.Read(m, k);
    second.Read(k, n);
    Machine& machine = Machine::Get();
    ++machine.products;
    std::vector<double> left(static_cast<size_t>(m * k)), sums(static_cast<size_t>(m));
    for (int64_t t = 0; t < k; ++t) {
      for (int64_t i = 0; i < m; ++i) left[static_cast<size_t>(t * m + i)] = first.At(i, t);
    }
    for (int64_t j = 0; j < n; ++j) {
      float* const column = static_cast<float*>(c) + j * ldc;
      if (kept != 0) machine.Touch(column, 4 * m, false, "cuBLAS");
      for (int64_t i = 0; i < m; ++i) sums[static_cast<size_t>(i)] = 0;
      for (int64_t t = 0; t < k; ++t) {
        const double value = second.At(t, j);
        const double* const others = &left[static_cast<size_t>(t * m)];
        for (int64_t i = 0; i < m; ++i) sums[static_cast<size_t>(i)] += others[i] * value;
      }
      machine.Touch(column, 4 * m, true, "cuBLAS");
      float* const values = reinterpret_cast<float*>(machine.memory.Reach(column));
      for (int64_t i = 0; i < m; ++i) {
        const double before = kept == 0 ? 0.0 : double{kept} * static_cast<double>(values[i]);
        values[i] = static_cast<float>(factor * sums[static_cast<size_t>(i)] + before);
      }
    }
  });
  return CUBLAS_STATUS_SUCCESS;
}

}  // extern "C"
