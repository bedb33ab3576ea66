#include "common/codec/f32.h"

#include <algorithm>
#include <cstring>

#include "common/base/check.h"
#include "common/base/vector_clones.h"

namespace tessera {
namespace {

float LoadFloat(const char* data) {
  float x;
  std::memcpy(&x, data, sizeof(x));
  return x;
}

TESSERA_VECTOR_CLONES
void AssignRun(const char* __restrict data, int64_t count, float weight, float* __restrict sum) {
  for (int64_t i = 0; i < count; ++i) {
    float x;
    __builtin_memcpy(&x, data + 4 * i, 4);
    sum[i] = weight * x;
  }
}

TESSERA_VECTOR_CLONES
void AccumulateRun(const char* __restrict data, int64_t count, float weight,
                   float* __restrict sum) {
  for (int64_t i = 0; i < count; ++i) {
    float x;
    __builtin_memcpy(&x, data + 4 * i, 4);
    sum[i] += weight * x;
  }
}

// Nonzero if any exponent is all ones.
TESSERA_VECTOR_CLONES
uint32_t AnyNotFinite(const char* data, int64_t count) {
  uint32_t any = 0;
  for (int64_t i = 0; i < count; ++i) {
    uint32_t bits;
    __builtin_memcpy(&bits, data + 4 * i, 4);
    any |= static_cast<uint32_t>((bits & 0x7f800000u) == 0x7f800000u);
  }
  return any;
}

}  // namespace

template <typename Run>
void F32Reader::Walk(int64_t count, float* sum, Run run) {
  while (count > 0) {
    TESSERA_CHECK(piece_ < payload_.pieces().size());
    const Payload::Piece& piece = payload_.pieces()[piece_];
    const int64_t whole = std::min(count, (piece.size - offset_) / 4);
    if (whole > 0) {
      run(piece.data + offset_, whole, sum);
      offset_ += 4 * whole;
      sum += whole;
      count -= whole;
    }
    if (count == 0) break;
    // Less than one entry is left in this piece: gather the next one byte by byte.
    char bytes[4];
    for (char& byte : bytes) {
      while (offset_ == payload_.pieces()[piece_].size) {
        ++piece_;
        offset_ = 0;
        TESSERA_CHECK(piece_ < payload_.pieces().size());
      }
      byte = payload_.pieces()[piece_].data[offset_++];
    }
    run(bytes, 1, sum);
    ++sum;
    --count;
  }
}

void F32Reader::Assign(int64_t count, float weight, float* sum) {
  Walk(count, sum,
       [weight](const char* data, int64_t n, float* out) { AssignRun(data, n, weight, out); });
}

void F32Reader::Accumulate(int64_t count, float weight, float* sum) {
  Walk(count, sum,
       [weight](const char* data, int64_t n, float* out) { AccumulateRun(data, n, weight, out); });
}

bool FiniteCheck::Feed(const char* data, int64_t size) {
  if (bad_entry_ >= 0) return false;
  const auto is_bad = [](float x) { return !(x - x == 0.0f); };
  while (carry_size_ > 0 && carry_size_ < 4 && size > 0) {
    carry_[carry_size_++] = *data++;
    --size;
  }
  if (carry_size_ == 4) {
    if (is_bad(LoadFloat(carry_))) {
      bad_entry_ = entries_;
      return false;
    }
    ++entries_;
    carry_size_ = 0;
  }
  const int64_t count = size / 4;
  if (AnyNotFinite(data, count) != 0) {
    int64_t i = 0;
    while (!is_bad(LoadFloat(data + 4 * i))) ++i;
    bad_entry_ = entries_ + i;
    return false;
  }
  entries_ += count;
  if (carry_size_ == 0) {
    const int rest = static_cast<int>(size - 4 * count);
    if (rest > 0) std::memcpy(carry_, data + 4 * count, rest);
    carry_size_ = rest;
  }
  return true;
}

}  // namespace tessera
