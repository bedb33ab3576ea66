// Kernels of which two do what none may, so that a tool that shall find such faults can show that it does, in
// kernels with names like ours: planted_faults none|memory|race, which exits with 0 whatever CUDA says of it.
#include <cuda_runtime.h>

#include <cstdio>
#include <cstring>

namespace tessera::cuda {
namespace {

constexpr int kThreads = 64;  // two warps

// Each thread takes what one of the other warp has written.
template <bool waits>
__global__ void __launch_bounds__(kThreads) Turn(int* values) {
  __shared__ int shared[kThreads];
  shared[threadIdx.x] = 0;
  __syncthreads();
  shared[threadIdx.x] = values[threadIdx.x];
  if constexpr (waits) __syncthreads();
  values[threadIdx.x] = shared[kThreads - 1 - threadIdx.x];
}

// One entry further than there are.
__global__ void __launch_bounds__(kThreads) WriteBehind(int* values) {
  values[threadIdx.x + 1] = 1;
}

int Fail(const char* what, cudaError_t error) {
  std::fprintf(stderr, "planted_faults: %s: %s\n", what, cudaGetErrorString(error));
  return 2;
}

int Main(const char* fault) {
  cudaStream_t stream;
  cudaError_t error = cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
  if (error != cudaSuccess) return Fail("cannot use the GPU", error);
  int* values;
  error = cudaMalloc(&values, kThreads * sizeof(int));
  if (error == cudaSuccess) error = cudaMemsetAsync(values, 0, kThreads * sizeof(int), stream);
  if (error != cudaSuccess) return Fail("cannot use its memory", error);
  if (std::strcmp(fault, "memory") == 0) {
    WriteBehind<<<1, kThreads, 0, stream>>>(values);
  } else if (std::strcmp(fault, "race") == 0) {
    Turn<false><<<1, kThreads, 0, stream>>>(values);
  } else {
    Turn<true><<<1, kThreads, 0, stream>>>(values);
  }
  error = cudaStreamSynchronize(stream);
  std::printf("planted_faults: %s: %s\n", fault, cudaGetErrorString(error));
  return 0;
}

}  // namespace
}  // namespace tessera::cuda

int main(int argc, char** argv) {
  const char* const fault = argc == 2 ? argv[1] : "";
  for (const char* const known : {"none", "memory", "race"}) {
    if (std::strcmp(fault, known) == 0) return tessera::cuda::Main(fault);
  }
  std::fprintf(stderr, "usage: planted_faults none|memory|race\n");
  return 2;
}
