// The kernels on the GPU. Standard and CUDA headers only: nvcc sees nothing else.
#include <cuda_runtime.h>

#include <cstring>
#include <type_traits>

#include "kernels/cuda/kernel_list.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/warp_product.h"

namespace tessera::cuda {
namespace {

constexpr unsigned kWarp = 32;

// The value of the lane `offset` above, one word at a time.
template <typename Value>
__device__ Value FromAbove(const Value& value, unsigned offset) {
  static_assert(sizeof(Value) % 4 == 0);
  uint32_t words[sizeof(Value) / 4];
  std::memcpy(words, &value, sizeof(Value));
#pragma unroll
  for (uint32_t& word : words) word = __shfl_down_sync(0xffffffffu, word, offset);
  Value above;
  std::memcpy(&above, words, sizeof(Value));
  return above;
}

// Each warp's values as a tree, then the warps' in their order, or as a tree by the first of them.
template <typename Kernel>
__device__ void Reduce(typename Kernel::Value value, typename Kernel::Shared& shared,
                       typename Kernel::Value* warps) {
#pragma unroll
  for (unsigned offset = kWarp / 2; offset > 0; offset /= 2) {
    value = Kernel::Combine(value, FromAbove(value, offset));
  }
  if (threadIdx.x % kWarp == 0) warps[threadIdx.x / kWarp] = value;
  __syncthreads();
  constexpr unsigned kWarps = Kernel::kThreads / kWarp;
  static_assert((kWarps & (kWarps - 1)) == 0);
  if constexpr (kTreeOfWarps<Kernel>) {
    if (threadIdx.x >= kWarp) return;
    value = warps[threadIdx.x % kWarps];
#pragma unroll
    for (unsigned offset = kWarps / 2; offset > 0; offset /= 2) {
      value = Kernel::Combine(value, FromAbove(value, offset));
    }
    if (threadIdx.x == 0) shared.total = value;
  } else if (threadIdx.x == 0) {
    for (unsigned warp = 1; warp < kWarps; ++warp) value = Kernel::Combine(value, warps[warp]);
    shared.total = value;
  }
}

struct ByWarp {
  __device__ void operator()(const LeftFactor& left, const RightFactor& right,
                             ProductSums* sums) const {
#ifdef __CUDA_ARCH__
    MultiplyByWarp(left, right, sums);
#endif
  }
};

template <int phase, typename Kernel>
__device__ void RunPhases(const Kernel& kernel, const Lane& lane, typename Kernel::Shared& shared,
                          typename Kernel::Own& own) {
  kernel.template Run<phase>(lane, shared, own);
  if constexpr (MultipliesBehind<Kernel, phase>()) {
    Kernel::template Products<phase>(ByWarp(), own);
  }
  if constexpr (phase + 1 < Kernel::kPhases) {
    if constexpr (Kernel::Reduces(phase)) {
      __shared__ typename Kernel::Value warps[Kernel::kThreads / kWarp];
      Reduce<Kernel>(own.value, shared, warps);
    }
    __syncthreads();
    RunPhases<phase + 1>(kernel, lane, shared, own);
  }
}

// Blocks that a multiprocessor shall have room for, which limits their registers. 0: as it comes.
template <typename Kernel, typename = void>
constexpr int kResident = 0;
template <typename Kernel>
constexpr int kResident<Kernel, std::void_t<decltype(Kernel::kResident)>> = Kernel::kResident;

template <typename Kernel>
__global__ void __launch_bounds__(Kernel::kThreads, kResident<Kernel>) Run(const Kernel kernel) {
  static_assert(Kernel::kThreads % kWarp == 0 && Kernel::kThreads <= 1024);
  __shared__ typename Kernel::Shared shared;
  typename Kernel::Own own;
  const Lane lane{static_cast<int>(threadIdx.x), blockIdx.x};
  if constexpr (kIterates<Kernel>) {
    const int64_t iterations = kernel.Iterations(lane.block);
    for (int64_t at = 0; at < iterations; ++at) {
      if (at > 0) __syncthreads();
      RunPhases<0>(kernel, Lane{lane.thread, lane.block, at}, shared, own);
    }
  } else {
    RunPhases<0>(kernel, lane, shared, own);
  }
}

}  // namespace

template <typename Kernel>
int LaunchOn(void* stream, int64_t blocks, const Kernel& kernel) {
  Run<<<static_cast<unsigned>(blocks), Kernel::kThreads, 0, static_cast<cudaStream_t>(stream)>>>(
      kernel);
  return static_cast<int>(cudaGetLastError());
}

#define TESSERA_LAUNCH(...) template int LaunchOn(void*, int64_t, const __VA_ARGS__&);
TESSERA_FOR_EACH_KERNEL(TESSERA_LAUNCH)
#undef TESSERA_LAUNCH

}  // namespace tessera::cuda
