// What compute capability 9.0 has for kernels that copy and compute at the same time, one instruction each: barriers in
// shared memory (mbarrier), copies of boxes of a matrix (TMA), and registers that warpgroups hand to one another. For
// nvcc only. PTX ISA 9.0, "mbarrier", "cp.async.bulk.tensor", "setmaxnreg". Addresses of 32 bits are in shared memory.
#ifndef TESSERA_KERNELS_CUDA_HOPPER_H_
#define TESSERA_KERNELS_CUDA_HOPPER_H_

#include <cuda.h>

#include <cstdint>

namespace tessera::cuda::hopper {

__device__ __forceinline__ uint32_t SharedAddress(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

// mbarrier: a phase ends when so many have arrived and the bytes that it expects are there. Phases have the parities 0,
// 1, 0, ...

__device__ __forceinline__ void MakeBarrier(uint32_t barrier, uint32_t arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}

// Called behind the last MakeBarrier: TMA sees the barriers as well.
__device__ __forceinline__ void PublishBarriers() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ __forceinline__ void Arrive(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

__device__ __forceinline__ void ArriveExpecting(uint32_t barrier, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
}

// Waits for the end of the phase of that parity: of the present one or the one before, as nothing else can be told
// apart.
__device__ __forceinline__ void Wait(uint32_t barrier, uint32_t parity) {
  uint32_t done;
  do {
    asm volatile(
        "{\n.reg .pred p;\n"
        "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
        "selp.b32 %0, 1, 0, p;\n}\n"
        : "=r"(done)
        : "r"(barrier), "r"(parity)
        : "memory");
  } while (done == 0);
}

// The hardware's barriers 1 to 15 (0 is __syncthreads), of whole warps.
__device__ __forceinline__ void Meet(int barrier, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}

// TMA. Boxes are those of the map, at a column and a row of its matrix; what lies outside the matrix is read as zeros,
// which count as bytes that have come, and is not written.

__device__ __forceinline__ uint64_t KeepInCache() {
  uint64_t policy;
  asm volatile("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}

__device__ __forceinline__ uint64_t PassThroughCache() {
  uint64_t policy;
  asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}

__device__ __forceinline__ void Prefetch(const CUtensorMap& map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

// Loads a box into shared memory. The barrier counts its bytes.
__device__ __forceinline__ void LoadBox(uint32_t to, const CUtensorMap& map, int column, int row,
                                        uint32_t barrier, uint64_t policy) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint"
      " [%0], [%1, {%2, %3}], [%4], %5;" ::"r"(to),
      "l"(&map), "r"(column), "r"(row), "r"(barrier), "l"(policy)
      : "memory");
}

__device__ __forceinline__ void StoreBox(const CUtensorMap& map, int column, int row, uint32_t from,
                                         uint64_t policy) {
  asm volatile(
      "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group.L2::cache_hint"
      " [%0, {%1, %2}], [%3], %4;" ::"l"(&map),
      "r"(column), "r"(row), "r"(from), "l"(policy)
      : "memory");
}

// Makes a group of this thread's stores since the last group.
__device__ __forceinline__ void EndStoreGroup() {
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

// Waits until no more than `groups` of this thread's groups have shared memory to read.
template <int groups>
__device__ __forceinline__ void WaitForStoresToRead() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(groups) : "memory");
}

// Waits until all stores are done.
__device__ __forceinline__ void WaitForStores() {
  asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}

// TMA and wgmma see what this thread has written to shared memory, once it has met others.
__device__ __forceinline__ void ShowWritesToCopies() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// Registers of each thread, for a whole warpgroup.

template <int registers>
__device__ __forceinline__ void TakeRegisters() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(registers));
}

template <int registers>
__device__ __forceinline__ void GiveRegisters() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(registers));
}

// Accesses to shared memory whose addresses the kernel swizzles itself.

__device__ __forceinline__ float2 LoadShared(uint32_t address) {
  float2 v;
  asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(v.x), "=f"(v.y) : "r"(address) : "memory");
  return v;
}

__device__ __forceinline__ void StoreShared(uint32_t address, float2 v) {
  asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(address), "f"(v.x), "f"(v.y) : "memory");
}

__device__ __forceinline__ void StoreShared(uint32_t address, uint32_t v) {
  asm volatile("st.shared.b32 [%0], %1;" ::"r"(address), "r"(v) : "memory");
}

// Two of bf16, to nearest, ties to even: RoundToBf16's bits, but for NaNs, which it makes 0x7fff. Those that
// arithmetic on the device makes are 0x7fffffff, of which RoundToBf16 makes the same.
__device__ __forceinline__ uint32_t RoundTwo(float low, float high) {
  uint32_t v;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(v) : "f"(high), "f"(low));
  return v;
}

}  // namespace tessera::cuda::hopper

#endif  // TESSERA_KERNELS_CUDA_HOPPER_H_
