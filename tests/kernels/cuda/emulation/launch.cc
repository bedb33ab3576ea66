// Kernels on the host: every thread of every block, phase by phase. Threads take turns in rising
// order in one block and in falling order in the next, and shared memory starts as garbage, so that
// a kernel that counts on an order within a phase gives itself away.
#include "kernels/cuda/launch.h"

#include <cstring>
#include <memory>
#include <vector>

#include "kernels/cuda/kernel_list.h"
#include "kernels/cuda/warp_product.h"
#include "tests/kernels/cuda/emulation/stream.h"

namespace tessera::cuda {
namespace {

constexpr int kWarp = 32;

// As launch.cu combines them.
template <typename Kernel>
typename Kernel::Value Reduced(const std::vector<typename Kernel::Own>& own) {
  std::vector<typename Kernel::Value> values;
  for (const typename Kernel::Own& each : own) values.push_back(each.value);
  for (int first = 0; first < Kernel::kThreads; first += kWarp) {
    for (int offset = kWarp / 2; offset > 0; offset /= 2) {
      for (int lane = 0; lane + offset < kWarp; ++lane) {
        values[first + lane] = Kernel::Combine(values[first + lane], values[first + lane + offset]);
      }
    }
  }
  std::vector<typename Kernel::Value> warps;
  for (int first = 0; first < Kernel::kThreads; first += kWarp) warps.push_back(values[first]);
  const auto count = static_cast<int>(warps.size());
  for (int offset = kTreeOfWarps<Kernel> ? count / 2 : 0; offset > 0; offset /= 2) {
    for (int warp = 0; warp < offset; ++warp) {
      warps[warp] = Kernel::Combine(warps[warp], warps[warp + offset]);
    }
  }
  for (int warp = 1; warp < count && !kTreeOfWarps<Kernel>; ++warp) {
    warps[0] = Kernel::Combine(warps[0], warps[warp]);
  }
  return warps[0];
}

// What each thread of a warp multiplies, in its order.
struct ThreadProduct {
  const LeftFactor* left;
  const RightFactor* right;
  ProductSums* sums;
};

// As launch.cu has each warp multiply: all threads' sums of a product, then those of the next one.
template <int phase, typename Kernel>
void MultiplyWarps(std::vector<typename Kernel::Own>& own) {
  for (int first = 0; first < Kernel::kThreads; first += kWarp) {
    std::vector<ThreadProduct> products[kWarp];
    for (int lane = 0; lane < kWarp; ++lane) {
      Kernel::template Products<phase>(
          [&](const LeftFactor& left, const RightFactor& right, ProductSums* sums) {
            products[lane].push_back({&left, &right, sums});
          },
          own[first + lane]);
    }
    for (size_t k = 0; k < products[0].size(); ++k) {
      const LeftFactor* left[kWarp];
      const RightFactor* right[kWarp];
      for (int lane = 0; lane < kWarp; ++lane) {
        left[lane] = products[lane].at(k).left;
        right[lane] = products[lane].at(k).right;
      }
      for (int lane = 0; lane < kWarp; ++lane) {
        ProductSums& sums = *products[lane][k].sums;
        sums = ProductOfThread(left, right, lane, sums);
      }
    }
  }
}

template <int phase, typename Kernel>
void RunPhases(const Kernel& kernel, int64_t block, int64_t iteration,
               typename Kernel::Shared& shared, std::vector<typename Kernel::Own>& own) {
  for (int i = 0; i < Kernel::kThreads; ++i) {
    const int thread = block % 2 == 0 ? i : Kernel::kThreads - 1 - i;
    kernel.template Run<phase>(Lane{thread, block, iteration}, shared, own[thread]);
  }
  if constexpr (MultipliesBehind<Kernel, phase>()) MultiplyWarps<phase, Kernel>(own);
  if constexpr (phase + 1 < Kernel::kPhases) {
    if constexpr (Kernel::Reduces(phase)) shared.total = Reduced<Kernel>(own);
    RunPhases<phase + 1>(kernel, block, iteration, shared, own);
  }
}

}  // namespace

template <typename Kernel>
int LaunchOn(void* stream, int64_t blocks, const Kernel& kernel) {
  static_cast<EmulatedStream*>(stream)->Queue([kernel, blocks] {
    std::vector<typename Kernel::Own> own(Kernel::kThreads);
    const auto shared = std::make_unique<typename Kernel::Shared>();
    // From the last block to the first: none may wait for another.
    for (int64_t block = blocks; block-- > 0;) {
      std::memset(static_cast<void*>(shared.get()), 0xff, sizeof(*shared));
      int64_t iterations = 1;
      if constexpr (kIterates<Kernel>) iterations = kernel.Iterations(block);
      for (int64_t iteration = 0; iteration < iterations; ++iteration) {
        RunPhases<0>(kernel, block, iteration, *shared, own);
      }
    }
  });
  return 0;
}

#define TESSERA_LAUNCH(...) template int LaunchOn(void*, int64_t, const __VA_ARGS__&);
TESSERA_FOR_EACH_KERNEL(TESSERA_LAUNCH)
#undef TESSERA_LAUNCH

}  // namespace tessera::cuda
