// Codecs whose entries stand by themselves, bit for bit what common/codec/plain_loops.h makes. `Entry` is a type of
// common/codec/plain_entry.h whose bytes are all of its code.
#ifndef TESSERA_KERNELS_CUDA_CODEC_PLAIN_KERNELS_H_
#define TESSERA_KERNELS_CUDA_CODEC_PLAIN_KERNELS_H_

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "common/codec/plain_entry.h"
#include "kernels/cuda/codec/bytes.h"
#include "kernels/cuda/tiles.h"

namespace tessera::cuda {

// Four entries of a thread. Reads 4n bytes, or 8n with a residual, of which it writes 4n.
template <typename Entry>
struct EncodePlain : OnePhase {
  using Code = typename Entry::Code;
  const float* entries;
  float* residual;  // null: nothing is held back
  char* out;
  int64_t n;

  int64_t blocks() const { return CeilDiv(n, 4 * kThreads); }

  template <int phase>
  TESSERA_HOST_DEVICE void Run(const Lane& lane, Shared&, Own&) const {
    const int64_t i = 4 * (lane.block * kThreads + lane.thread);
    const int count = n - i < 4 ? static_cast<int>(n - i) : 4;
    if (count <= 0) return;
    float v[4] = {};
    Load(entries + i, count, v);
    if (residual != nullptr) {
      float held[4] = {};
      Load(residual + i, count, held);
      TESSERA_UNROLL for (int k = 0; k < 4; ++k) v[k] = held[k] + v[k];
    }
    Code codes[4];
    TESSERA_UNROLL for (int k = 0; k < 4; ++k) codes[k] = Entry::Of(v[k]);
    char* const to = out + i * static_cast<int64_t>(sizeof(Code));
    if (count == 4 && IsMultiple(to, 4 * sizeof(Code))) {
      StoreFour(codes, true, reinterpret_cast<Code*>(to));
    } else {
      TESSERA_UNROLL for (int k = 0; k < 4; ++k) {
        if (k < count) PutBytes(codes[k], sizeof(Code), to + k * sizeof(Code));
      }
    }
    if (residual == nullptr) return;
    TESSERA_UNROLL for (int k = 0; k < 4; ++k) v[k] = v[k] - Entry::From(codes[k]);
    if (count == 4) return StoreFour(v, IsMultiple(residual + i, 16), residual + i);
    TESSERA_UNROLL for (int k = 0; k < 4; ++k) {
      if (k < count) residual[i + k] = v[k];
    }
  }

 private:
  TESSERA_HOST_DEVICE static void Load(const float* from, int count, float* to) {
    if (count == 4) return LoadFour(from, IsMultiple(from, 16), to);
    TESSERA_UNROLL for (int k = 0; k < 4; ++k) to[k] = k < count ? from[k] : 0.0f;
  }
};

template <typename Entry>
struct DecodePlain : OnePhase {
  using Code = typename Entry::Code;
  const char* in;
  float* entries;
  int64_t n;

  static constexpr int kFours = 2;  // of a thread
  static constexpr int64_t kStride = 4 * kThreads;

  int64_t blocks() const { return CeilDiv(n, kFours * kStride); }

  template <int phase>
  TESSERA_HOST_DEVICE void Run(const Lane& lane, Shared&, Own&) const {
    const int64_t first = lane.block * kFours * kStride + 4 * lane.thread;
    if (first + (kFours - 1) * kStride + 4 <= n && IsMultiple(in, 4 * sizeof(Code))) {
      Code codes[kFours][4];
      TESSERA_UNROLL for (int f = 0; f < kFours; ++f) {
        LoadFour(reinterpret_cast<const Code*>(At(first + f * kStride)), true, codes[f]);
      }
      TESSERA_UNROLL for (int f = 0; f < kFours; ++f) {
        float* const to = entries + first + f * kStride;
        float v[4];
        TESSERA_UNROLL for (int k = 0; k < 4; ++k) v[k] = Entry::From(codes[f][k]);
        StoreFour(v, IsMultiple(to, 16), to);
      }
      return;
    }
    for (int f = 0; f < kFours; ++f) {
      const int64_t i = first + f * kStride;
      for (int k = 0; k < 4 && i + k < n; ++k) {
        entries[i + k] = Entry::From(static_cast<Code>(TakeBytes(At(i + k), sizeof(Code))));
      }
    }
  }

 private:
  TESSERA_HOST_DEVICE const char* At(int64_t i) const {
    return in + i * static_cast<int64_t>(sizeof(Code));
  }
};

}  // namespace tessera::cuda

#endif  // TESSERA_KERNELS_CUDA_CODEC_PLAIN_KERNELS_H_
