// How a kernel is written here, and its launch.
//
// A kernel is a struct of arguments whose work is cut into phases. All threads of a block do one
// phase, then meet, then do the next; values that a block shares lie in Shared, a thread's own
// between phases in Own. A kernel may ask that the threads' values be combined behind a phase
// (`Reduces`): the result is shared.total in the next one.
//
// That makes a kernel something the host can run as well, phase by phase, without a GPU:
// tests/kernels/cuda/emulation does, over whole grids, and holds all of them to the battery.
//
//   struct Kernel {
//     static constexpr int kThreads, kPhases;    // kThreads is a multiple of 32
//     struct Shared, Own;
//     template <int phase> void Run(const Lane&, Shared&, Own&) const;
//   };
//   and where it reduces: using Value; static constexpr bool Reduces(int phase); Own::value;
//   Shared::total; static Value Combine(const Value&, const Value&)
//   static constexpr bool kTreeOfWarps;  true: warps' values are combined as a tree like those of a warp, which pays
//                                        where Combine is long; none: in their order, by one thread
//   and where its warps multiply behind a phase, by tensor cores (warp_product.h):
//     static constexpr bool Multiplies(int phase);
//     template <int phase, typename Multiply> static void Products(const Multiply& multiply, Own& own);
//       calls multiply(LeftFactor, RightFactor, ProductSums*) with what Own has; all threads as often, in one order
//   and where a block does all of its phases again and again:
//     int64_t Iterations(int64_t block) const;      Lane::iteration counts them; Own stays
#ifndef TESSERA_KERNELS_CUDA_LAUNCH_H_
#define TESSERA_KERNELS_CUDA_LAUNCH_H_

#include <cstdint>
#include <type_traits>

#include "common/base/host_device.h"

namespace tessera::cuda {

struct Lane {
  int thread;
  int64_t block;
  int64_t iteration = 0;
};

// For kernels of one phase.
struct OnePhase {
  static constexpr int kThreads = 256;
  static constexpr int kPhases = 1;
  struct Shared {};
  struct Own {};
  static constexpr bool Reduces(int) { return false; }
};

template <typename Kernel, typename = void>
constexpr bool kTreeOfWarps = false;
template <typename Kernel>
constexpr bool kTreeOfWarps<Kernel, std::void_t<decltype(Kernel::kTreeOfWarps)>> =
    Kernel::kTreeOfWarps;

template <typename Kernel, typename = void>
constexpr bool kIterates = false;
template <typename Kernel>
constexpr bool kIterates<Kernel, std::void_t<decltype(&Kernel::Iterations)>> = true;

template <typename Kernel, typename = void>
constexpr bool kMultiplies = false;
template <typename Kernel>
constexpr bool kMultiplies<Kernel, std::void_t<decltype(Kernel::Multiplies(0))>> = true;
template <typename Kernel, int phase>
constexpr bool MultipliesBehind() {
  if constexpr (kMultiplies<Kernel>) {
    return Kernel::Multiplies(phase);
  } else {
    return false;
  }
}

// The largest grid.
constexpr int64_t kBlocksMax = (int64_t{1} << 31) - 1;

TESSERA_HOST_DEVICE constexpr int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Queues `blocks` blocks, between 1 and kBlocksMax, of a kernel on a stream of the runtime. Returns
// the runtime's error, 0 for none. Defined once for each kernel of kernel_list.h: in launch.cu, and
// in the emulation.
template <typename Kernel>
int LaunchOn(void* stream, int64_t blocks, const Kernel& kernel);

}  // namespace tessera::cuda

#endif  // TESSERA_KERNELS_CUDA_LAUNCH_H_
