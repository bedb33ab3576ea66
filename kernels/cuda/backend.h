// The CUDA backend: cuBLAS for matrix products, kernels of our own for the rest, on one GPU.
#ifndef TESSERA_KERNELS_CUDA_BACKEND_H_
#define TESSERA_KERNELS_CUDA_BACKEND_H_

#include <memory>

#include "absl/status/statusor.h"
#include "kernels/backend.h"

namespace tessera {

// GPU number `ordinal` of this machine, from 0.
//
// Kernels of our own round as the CPU backend's do, expression by expression, but for the order of
// sums in f64; matrix products round as cuBLAS likes. Results do not depend on the GPU, those of
// products excepted.
//   kFailedPrecondition  no such GPU, or the driver or the build does not fit it
absl::StatusOr<std::unique_ptr<Backend>> CreateCudaBackend(int ordinal);

}  // namespace tessera

#endif  // TESSERA_KERNELS_CUDA_BACKEND_H_
