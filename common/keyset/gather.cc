#include "common/keyset/gather.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "common/base/check.h"

#if defined(__GNUC__) && defined(__x86_64__)
#include <immintrin.h>
#define TESSERA_GATHER_X86 1
#endif

namespace tessera {
namespace {

// Columns are taken by groups of 16, a register of AVX-512.
constexpr int64_t kGroup = 16;
// With fewer columns than one in so many, most groups would be read for nothing.
constexpr int64_t kSparse = 32;

#ifdef TESSERA_GATHER_X86

// What `masks` say of the groups [0, roomy) is stored a register at a time: what is stored too much
// is overwritten by the next group. Returns the number of columns taken.
__attribute__((target("avx512f,popcnt"))) int64_t GatherRoomy512(const uint16_t* masks,
                                                                 int64_t roomy, const float* row,
                                                                 float* out) {
  float* const begin = out;
  for (int64_t g = 0; g < roomy; ++g) {
    const __m512 all = _mm512_loadu_ps(row + kGroup * g);
    _mm512_storeu_ps(out, _mm512_maskz_compress_ps(masks[g], all));
    out += __builtin_popcount(masks[g]);
  }
  return out - begin;
}

// The last groups store just what they take: there is no room behind them.
__attribute__((target("avx512f,popcnt"))) void GatherRest512(const uint16_t* masks, int64_t groups,
                                                             const float* row, float* out) {
  for (int64_t g = 0; g < groups; ++g) {
    const int count = __builtin_popcount(masks[g]);
    const __m512 taken = _mm512_maskz_loadu_ps(masks[g], row + kGroup * g);
    const __mmask16 first = static_cast<__mmask16>((1u << count) - 1);
    _mm512_mask_storeu_ps(out, first, _mm512_maskz_compress_ps(masks[g], taken));
    out += count;
  }
}

__attribute__((target("avx512f,popcnt"))) void Scatter512(const uint16_t* masks, int64_t roomy,
                                                          int64_t groups, const float* values,
                                                          float* row) {
  // Groups with room behind them are read a register at a time; what is read too much is masked out.
  int64_t g = 0;
  for (; g < roomy; ++g) {
    const __m512 spread = _mm512_maskz_expand_ps(masks[g], _mm512_loadu_ps(values));
    _mm512_mask_storeu_ps(row + kGroup * g, masks[g], spread);
    values += __builtin_popcount(masks[g]);
  }
  for (; g < groups; ++g) {
    const int count = __builtin_popcount(masks[g]);
    const __m512 packed = _mm512_maskz_loadu_ps(static_cast<__mmask16>((1u << count) - 1), values);
    _mm512_mask_storeu_ps(row + kGroup * g, masks[g], _mm512_maskz_expand_ps(masks[g], packed));
    values += count;
  }
}

// By mask of 8 bits, the places of its set bits in ascending order: what vpermps needs to move them to the front.
using Permutations = std::array<std::array<int32_t, 8>, 256>;
constexpr Permutations MakePermutations() {
  Permutations table{};
  for (int mask = 0; mask < 256; ++mask) {
    int next = 0;
    for (int bit = 0; bit < 8; ++bit) {
      if ((mask >> bit & 1) != 0) table[mask][next++] = bit;
    }
  }
  return table;
}
alignas(32) constexpr Permutations kPermutations = MakePermutations();

__attribute__((target("avx2,popcnt"))) int64_t GatherRoomy256(const uint16_t* masks, int64_t roomy,
                                                              const float* row, float* out) {
  float* const begin = out;
  for (int64_t g = 0; g < roomy; ++g) {
    for (int half = 0; half < 2; ++half) {
      const int mask = masks[g] >> 8 * half & 255;
      const __m256i order =
          _mm256_load_si256(reinterpret_cast<const __m256i*>(kPermutations[mask].data()));
      // Eight columns at a time, as AVX2 has no instruction that compresses.
      const __m256 all = _mm256_loadu_ps(row + kGroup * g + 8 * half);
      _mm256_storeu_ps(out, _mm256_permutevar8x32_ps(all, order));
      out += __builtin_popcount(mask);
    }
  }
  return out - begin;
}

#endif

}  // namespace

GatherPath BestGatherPath() {
#ifdef TESSERA_GATHER_X86
  if (__builtin_cpu_supports("popcnt")) {
    if (__builtin_cpu_supports("avx512f")) return GatherPath::kAvx512;
    if (__builtin_cpu_supports("avx2")) return GatherPath::kAvx2;
  }
#endif
  return GatherPath::kScalar;
}

ColumnSet::ColumnSet(const std::vector<int32_t>& columns, int64_t width, GatherPath path)
    : width_(width), size_(static_cast<int64_t>(columns.size())), path_(path), columns_(columns) {
  // Columns ascend, so the first and the last bound all.
  TESSERA_CHECK(columns.empty() || (columns.front() >= 0 && columns.back() < width));
  // Columns without gaps, as of a whole parameter, are one copy.
  is_run_ = columns.empty() || columns.back() - columns.front() + 1 == size_;
  // Below that share, reading the wanted columns one by one touches fewer lines of the cache.
  if (is_run_ || size_ * kSparse < width) path_ = GatherPath::kScalar;
  if (path_ == GatherPath::kScalar) return;
  masks_.resize((width + kGroup - 1) / kGroup);
  for (const int32_t column : columns) {
    masks_[column / kGroup] |= static_cast<uint16_t>(1 << column % kGroup);
  }
  const int64_t whole_groups = width / kGroup;
  // Groups behind which at least a register of output follows: these may store more than they take.
  for (int64_t before = 0; roomy_groups_ < whole_groups && before + kGroup <= size_;) {
    before += __builtin_popcount(masks_[roomy_groups_++]);
  }
}

void ColumnSet::Gather(const float* row, int64_t begin, int64_t end, float* out) const {
  if (begin == end) return;
  if (is_run_) {
    std::memcpy(out, row + columns_[begin], (end - begin) * sizeof(float));
    return;
  }
#ifdef TESSERA_GATHER_X86
  if (begin == 0 && end == size_ && path_ == GatherPath::kAvx512) {
    const int64_t taken = GatherRoomy512(masks_.data(), roomy_groups_, row, out);
    GatherRest512(masks_.data() + roomy_groups_,
                  static_cast<int64_t>(masks_.size()) - roomy_groups_, row + kGroup * roomy_groups_,
                  out + taken);
    return;
  }
  if (begin == 0 && end == size_ && path_ == GatherPath::kAvx2) {
    const int64_t taken = GatherRoomy256(masks_.data(), roomy_groups_, row, out);
    out += taken;
    begin += taken;
  }
#endif
  // The rest, or everything where only part of the row is wanted, goes column by column.
  for (int64_t i = begin; i < end; ++i) *out++ = row[columns_[i]];
}

void ColumnSet::Scatter(const float* values, float* row) const {
  if (size_ == 0) return;
  if (is_run_) {
    std::memcpy(row + columns_[0], values, size_ * sizeof(float));
    return;
  }
#ifdef TESSERA_GATHER_X86
  if (path_ == GatherPath::kAvx512) {
    Scatter512(masks_.data(), roomy_groups_, static_cast<int64_t>(masks_.size()), values, row);
    return;
  }
#endif
  for (int64_t i = 0; i < size_; ++i) row[columns_[i]] = values[i];
}

}  // namespace tessera
