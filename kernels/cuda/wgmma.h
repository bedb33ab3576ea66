// Products by a warpgroup's 128 threads, whose factors lie in shared memory (wgmma, compute capability 9.0). For nvcc
// only. PTX ISA 9.0, "Asynchronous Warpgroup Level Matrix Instructions".
//
// Both factors are "MN-major": along rows of a matrix [terms, m or n], as TMA brings them with 128-byte swizzle. In
// CUTLASS's words (cute/arch/mma_sm90_desc.hpp) the canonical layout of that, in units T of 16 bytes, is
//   ((T, 8, m), (8, k)) : ((1, T, leading), (8T, stride))
// A block is 64 values (128 bytes) of m or n times 8 terms, 1024 bytes; `leading` is from a block to that of the next
// 64 values, `stride` to that of the next 8 terms. A box of TMA, [terms][64 values], is such blocks one behind another.
#ifndef TESSERA_KERNELS_CUDA_WGMMA_H_
#define TESSERA_KERNELS_CUDA_WGMMA_H_

#include <cstdint>

namespace tessera::cuda::hopper {

constexpr int kBoxColumns = 64;                 // of bf16: 128 bytes
constexpr uint32_t kBlockBytes = 8 * 128;       // the `stride`
constexpr int kProductTerms = 16;               // of one instruction
constexpr uint32_t kAdvance = 2 * kBlockBytes;  // from its terms to the next ones

// A factor's descriptor but for its address: of boxes of `terms` rows.
constexpr uint64_t FactorOf(int terms) {
  const uint64_t leading = static_cast<uint64_t>(terms) * 128;
  constexpr uint64_t kSwizzle128 = uint64_t{1} << 62;
  return kSwizzle128 | uint64_t{kBlockBytes >> 4} << 32 | leading >> 4 << 16;
}

// The address is that of its first box, advances further; boxes lie at multiples of kBlockBytes.
__device__ __forceinline__ uint64_t FactorAt(uint64_t factor, uint32_t address) {
  return factor | (address & 0x3ffff) >> 4;
}

// To be called before the first product of a group: what was done to its registers is complete then.
__device__ __forceinline__ void BeginProducts() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

__device__ __forceinline__ void EndProductGroup() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

// Waits until no more than `groups` groups are at work.
template <int groups>
__device__ __forceinline__ void WaitForProducts() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(groups) : "memory");
}

// No use of the sums moves across it: the compiler does not know that products are still writing them.
__device__ __forceinline__ void Pin(float (&d)[64]) {
#pragma unroll
  for (int i = 0; i < 64; ++i) asm volatile("" : "+f"(d[i])::"memory");
}

// d = a^T b, or d += : a is [16, 64], b [16, 128], d [64, 128]. Thread t has, of row 16 (t / 32) + t % 32 / 4 and the
// one 8 below it, two of each 8 columns, from 2 (t % 4) on: d[4 j] and d[4 j + 1] are the upper row's in the j-th 8
// columns, the next two the lower one's.
__device__ __forceinline__ void Multiply(float (&d)[64], uint64_t a, uint64_t b, bool adds) {
  asm volatile(
      "{\n.reg .pred p;\n"
      "setp.ne.b32 p, %66, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
      "}, %64, %65, p, 1, 1, 1, 1;\n}\n"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]),
        "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]),
        "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]),
        "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]),
        "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]), "+f"(d[32]), "+f"(d[33]), "+f"(d[34]),
        "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]), "+f"(d[40]), "+f"(d[41]),
        "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]), "+f"(d[48]),
        "+f"(d[49]), "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55]),
        "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), "+f"(d[61]), "+f"(d[62]),
        "+f"(d[63])
      : "l"(a), "l"(b), "r"(static_cast<int>(adds)));
}

}  // namespace tessera::cuda::hopper

#endif  // TESSERA_KERNELS_CUDA_WGMMA_H_
