// Numbers in the bytes of a payload, which may be misaligned, as kernels write and read them.
#ifndef TESSERA_KERNELS_CUDA_CODEC_BYTES_H_
#define TESSERA_KERNELS_CUDA_CODEC_BYTES_H_

#include <cstdint>
#include <cstring>

#include "common/base/host_device.h"

namespace tessera::cuda {

TESSERA_HOST_DEVICE inline bool IsMultiple(const void* address, int64_t of) {
  return reinterpret_cast<uintptr_t>(address) % static_cast<uintptr_t>(of) == 0;
}

TESSERA_HOST_DEVICE inline uint32_t MagnitudeBits(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof(bits));
  return bits & 0x7fffffffu;
}

TESSERA_HOST_DEVICE inline int CountBits(uint32_t word) {
#ifdef __CUDA_ARCH__
  return __popc(word);
#else
  return __builtin_popcount(word);
#endif
}

// The lowest `count` bytes of `bytes` (0 to 8), wherever they go.
TESSERA_HOST_DEVICE inline void PutBytes(uint64_t bytes, int count, char* out) {
  const auto low = static_cast<uint32_t>(bytes), high = static_cast<uint32_t>(bytes >> 32);
  if (IsMultiple(out, 4) && (count == 4 || count == 8)) {
    *reinterpret_cast<uint32_t*>(out) = low;
    if (count == 8) *reinterpret_cast<uint32_t*>(out + 4) = high;
    return;
  }
  for (int i = 0; i < count; ++i) out[i] = static_cast<char>(bytes >> 8 * i);
}

TESSERA_HOST_DEVICE inline uint64_t TakeBytes(const char* in, int count) {
  if (IsMultiple(in, 4) && (count == 4 || count == 8)) {
    const uint64_t low = *reinterpret_cast<const uint32_t*>(in);
    return count == 4
               ? low
               : low | static_cast<uint64_t>(*reinterpret_cast<const uint32_t*>(in + 4)) << 32;
  }
  uint64_t bytes = 0;
  for (int i = 0; i < count; ++i) {
    bytes |= static_cast<uint64_t>(static_cast<unsigned char>(in[i])) << 8 * i;
  }
  return bytes;
}

TESSERA_HOST_DEVICE inline void PutFloat(float value, char* out) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  PutBytes(bits, 4, out);
}

TESSERA_HOST_DEVICE inline float TakeFloat(const char* in) {
  const auto bits = static_cast<uint32_t>(TakeBytes(in, 4));
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

}  // namespace tessera::cuda

#endif  // TESSERA_KERNELS_CUDA_CODEC_BYTES_H_
