#include "bench/codecs/plain_copies.h"

#include <cstring>

#include "common/base/vector_clones.h"

namespace tessera {
namespace {

TESSERA_VECTOR_CLONES
void Narrow2(const float* __restrict in, int64_t count, uint16_t* __restrict out) {
  for (int64_t i = 0; i < count; ++i) {
    uint32_t bits;
    __builtin_memcpy(&bits, in + i, 4);
    out[i] = static_cast<uint16_t>(bits >> 16);
  }
}

TESSERA_VECTOR_CLONES
void Narrow1(const float* __restrict in, int64_t count, uint8_t* __restrict out) {
  for (int64_t i = 0; i < count; ++i) {
    uint32_t bits;
    __builtin_memcpy(&bits, in + i, 4);
    out[i] = static_cast<uint8_t>(bits >> 24);
  }
}

TESSERA_VECTOR_CLONES
void Widen2(const uint16_t* __restrict in, int64_t count, uint32_t* __restrict out) {
  for (int64_t i = 0; i < count; ++i) out[i] = static_cast<uint32_t>(in[i]) << 16;
}

TESSERA_VECTOR_CLONES
void Widen1(const uint8_t* __restrict in, int64_t count, uint32_t* __restrict out) {
  for (int64_t i = 0; i < count; ++i) out[i] = static_cast<uint32_t>(in[i]) << 24;
}

TESSERA_VECTOR_CLONES
void Onto4(const uint32_t* __restrict in, int64_t count, uint32_t* __restrict out) {
  for (int64_t i = 0; i < count; ++i) out[i] += in[i];
}

TESSERA_VECTOR_CLONES
void Onto2(const uint16_t* __restrict in, int64_t count, uint32_t* __restrict out) {
  for (int64_t i = 0; i < count; ++i) out[i] += in[i];
}

TESSERA_VECTOR_CLONES
void Onto1(const uint8_t* __restrict in, int64_t count, uint32_t* __restrict out) {
  for (int64_t i = 0; i < count; ++i) out[i] += in[i];
}

TESSERA_VECTOR_CLONES
void NarrowSum2(const uint32_t* __restrict in, int64_t count, uint32_t* __restrict held,
                uint16_t* __restrict out) {
  for (int64_t i = 0; i < count; ++i) {
    held[i] += in[i];
    out[i] = static_cast<uint16_t>(held[i] >> 16);
  }
}

TESSERA_VECTOR_CLONES
void NarrowSum1(const uint32_t* __restrict in, int64_t count, uint32_t* __restrict held,
                uint8_t* __restrict out) {
  for (int64_t i = 0; i < count; ++i) {
    held[i] += in[i];
    out[i] = static_cast<uint8_t>(held[i] >> 24);
  }
}

}  // namespace

void Narrow(const float* in, int64_t count, int bytes, char* narrow) {
  if (bytes == 4) {
    std::memcpy(narrow, in, 4 * count);
  } else if (bytes == 2) {
    Narrow2(in, count, reinterpret_cast<uint16_t*>(narrow));
  } else {
    Narrow1(in, count, reinterpret_cast<uint8_t*>(narrow));
  }
}

void NarrowSum(const float* in, int64_t count, int bytes, float* held, char* narrow) {
  const uint32_t* const from = reinterpret_cast<const uint32_t*>(in);
  uint32_t* const sum = reinterpret_cast<uint32_t*>(held);
  if (bytes == 2) {
    NarrowSum2(from, count, sum, reinterpret_cast<uint16_t*>(narrow));
  } else {
    NarrowSum1(from, count, sum, reinterpret_cast<uint8_t*>(narrow));
  }
}

void Widen(const char* narrow, int64_t count, int bytes, float* out) {
  if (bytes == 4) {
    std::memcpy(out, narrow, 4 * count);
  } else if (bytes == 2) {
    Widen2(reinterpret_cast<const uint16_t*>(narrow), count, reinterpret_cast<uint32_t*>(out));
  } else {
    Widen1(reinterpret_cast<const uint8_t*>(narrow), count, reinterpret_cast<uint32_t*>(out));
  }
}

void WidenOnto(const char* narrow, int64_t count, int bytes, float* sum) {
  uint32_t* const out = reinterpret_cast<uint32_t*>(sum);
  if (bytes == 4) {
    Onto4(reinterpret_cast<const uint32_t*>(narrow), count, out);
  } else if (bytes == 2) {
    Onto2(reinterpret_cast<const uint16_t*>(narrow), count, out);
  } else {
    Onto1(reinterpret_cast<const uint8_t*>(narrow), count, out);
  }
}

void AddOnto(const float* in, int64_t count, float* sum) {
  Onto4(reinterpret_cast<const uint32_t*>(in), count, reinterpret_cast<uint32_t*>(sum));
}

}  // namespace tessera
