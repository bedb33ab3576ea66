// The CUDA backend: cuBLAS for matrix products, cuDNN for convolutions where it is there, kernels of our own for the
// rest, on one GPU.
#ifndef TESSERA_KERNELS_CUDA_BACKEND_H_
#define TESSERA_KERNELS_CUDA_BACKEND_H_

#include <memory>

#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "kernels/device_options.h"

namespace tessera {

// GPU number `ordinal` of this machine, from 0.
//
// Kernels of our own round as the CPU backend's do, expression by expression, but for the order of
// sums in f64; matrix products and convolutions round as the libraries like. Results do not depend on the
// GPU, theirs excepted.
//   kFailedPrecondition  no such GPU, or the driver or the build does not fit it
absl::StatusOr<std::unique_ptr<Backend>> CreateCudaBackend(int ordinal,
                                                           const DeviceOptions& options = {});

}  // namespace tessera

#endif  // TESSERA_KERNELS_CUDA_BACKEND_H_
