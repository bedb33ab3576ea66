#include "common/keyset/entry_set.h"

#include <algorithm>
#include <utility>

#include "common/base/check.h"
#include "common/keyset/word_bits.h"

#if defined(__GNUC__) && defined(__x86_64__)
#include <immintrin.h>
#define TESSERA_ENTRY_SET_X86 1
#endif

namespace tessera {
namespace {

constexpr int64_t kWord = 64;
// A word with fewer bits is done bit by bit.
constexpr int kFewBits = 4;

// The bits [begin, end) of a word, end > begin.
uint64_t BitRange(int64_t begin, int64_t end) {
  const uint64_t up_to_end = end == kWord ? ~uint64_t{0} : (uint64_t{1} << end) - 1;
  return up_to_end & (~uint64_t{0} << begin);
}

// Calls visit(bit, how many were before it) for the bits of a word, the lowest first. Returns their number.
template <typename Visit>
int64_t EachBit(uint64_t word, Visit visit) {
  int64_t count = 0;
  for (; word != 0; word &= word - 1) visit(__builtin_ctzll(word), count++);
  return count;
}

// What a word of the set does: `all` is the array at the word's first place.
struct Gathering {
  static int64_t Bits(uint64_t word, const float* all, float* out) {
    return EachBit(word, [&](int bit, int64_t i) { out[i] = all[bit]; });
  }
};
struct Scattering {
  static int64_t Bits(uint64_t word, float* all, const float* values) {
    return EachBit(word, [&](int bit, int64_t i) { all[bit] = values[i]; });
  }
};
struct Adding {
  static int64_t Bits(uint64_t word, float* all, const float* values) {
    return EachBit(word, [&](int bit, int64_t i) { all[bit] += values[i]; });
  }
};

#ifdef TESSERA_ENTRY_SET_X86
#define TESSERA_ENTRY_SET_512 __attribute__((target("avx512f,popcnt")))

// The lowest `count` of 16 lanes.
TESSERA_ENTRY_SET_512 inline __mmask16 FirstLanes(int count) {
  return static_cast<__mmask16>((1u << count) - 1);
}

// Copies the entries of `count` words of the set, whose first place is all[0], to `out`. Returns how many.
TESSERA_ENTRY_SET_512 int64_t GatherWords(const uint64_t* words, int64_t count, const float* all,
                                          float* out) {
  float* const begin = out;
  for (int64_t w = 0; w < count; ++w, all += kWord) {
    if (__builtin_popcountll(words[w]) < kFewBits) {
      for (uint64_t word = words[w]; word != 0; word &= word - 1) {
        *out++ = all[__builtin_ctzll(word)];
      }
      continue;
    }
    for (int group = 0; group < 4; ++group) {
      const __mmask16 bits = static_cast<__mmask16>(words[w] >> 16 * group);
      const int taken = __builtin_popcount(bits);
      const __m512 lanes = _mm512_maskz_compress_ps(bits, _mm512_loadu_ps(all + 16 * group));
      _mm512_mask_storeu_ps(out, FirstLanes(taken), lanes);
      out += taken;
    }
  }
  return out - begin;
}

// Writes or adds `values` to the entries of `count` words of the set. Returns how many were taken.
template <bool kAdds>
TESSERA_ENTRY_SET_512 int64_t PutWords(const uint64_t* words, int64_t count, const float* values,
                                       float* all) {
  const float* const begin = values;
  for (int64_t w = 0; w < count; ++w, all += kWord) {
    if (__builtin_popcountll(words[w]) < kFewBits) {
      for (uint64_t word = words[w]; word != 0; word &= word - 1) {
        float* const to = all + __builtin_ctzll(word);
        *to = kAdds ? *to + *values : *values;
        ++values;
      }
      continue;
    }
    for (int group = 0; group < 4; ++group) {
      const __mmask16 bits = static_cast<__mmask16>(words[w] >> 16 * group);
      const int taken = __builtin_popcount(bits);
      const __m512 packed = _mm512_maskz_loadu_ps(FirstLanes(taken), values);
      __m512 lanes = _mm512_maskz_expand_ps(bits, packed);
      float* const to = all + 16 * group;
      if (kAdds) lanes = _mm512_add_ps(_mm512_maskz_loadu_ps(bits, to), lanes);
      _mm512_mask_storeu_ps(to, bits, lanes);
      values += taken;
    }
  }
  return values - begin;
}
#endif

// Words that lie in [begin, end) in part go bit by bit, the others to `words`, where there is such
// a loop.
template <typename Bits, typename Words>
int64_t ForRange(const EntrySet& set, int64_t begin, int64_t end, Bits bits, Words words) {
  int64_t done = 0;
  const auto partial = [&](int64_t from, int64_t to) {
    const int64_t word = from / kWord;
    const uint64_t range = BitRange(from - word * kWord, to - word * kWord);
    done += bits(set.words()[word] & range, word * kWord - begin, done);
  };
  const int64_t first_whole = std::min((begin + kWord - 1) / kWord * kWord, end);
  if (begin < first_whole) partial(begin, first_whole);
  const int64_t last_whole = std::max(first_whole, end / kWord * kWord);
  if (first_whole < last_whole) {
    done += words(set.words().data() + first_whole / kWord, (last_whole - first_whole) / kWord,
                  first_whole - begin, done);
  }
  if (last_whole < end) partial(last_whole, end);
  return done;
}

template <typename Bits>
auto BitByBit(Bits bits) {
  return [bits](const uint64_t* words, int64_t count, int64_t at, int64_t done) {
    int64_t taken = 0;
    for (int64_t w = 0; w < count; ++w) taken += bits(words[w], at + w * kWord, done + taken);
    return taken;
  };
}

}  // namespace

EntrySet::EntrySet(int64_t size, std::vector<uint64_t> words)
    : size_(size), words_(std::move(words)) {
  TESSERA_CHECK(static_cast<int64_t>(words_.size()) == (size + kWord - 1) / kWord);
  // Bits beyond the size would be counted and never visited.
  TESSERA_CHECK(size % kWord == 0 || words_.back() >> size % kWord == 0);
  for (const uint64_t word : words_) count_ += CountBits(word);
}

EntrySet EntrySet::All(int64_t size) {
  std::vector<uint64_t> words((size + kWord - 1) / kWord, ~uint64_t{0});
  if (size % kWord != 0) words.back() = BitRange(0, size % kWord);
  return EntrySet(size, std::move(words));
}

EntrySet EntrySet::Joined(const EntrySet& a, const EntrySet& b) {
  TESSERA_CHECK(a.size_ == b.size_);
  EntrySet joined = a;
  for (size_t i = 0; i < joined.words_.size(); ++i) {
    // The two must be disjoint, or the count would be wrong.
    TESSERA_CHECK((a.words_[i] & b.words_[i]) == 0);
    joined.words_[i] |= b.words_[i];
  }
  joined.count_ += b.count_;
  return joined;
}

int64_t EntrySet::CountIn(int64_t begin, int64_t end) const {
  const auto bits = [](uint64_t word, int64_t, int64_t) { return CountBits(word); };
  return ForRange(*this, begin, end, bits, BitByBit(bits));
}

std::vector<int64_t> EntrySet::places() const {
  std::vector<int64_t> places;
  places.reserve(count_);
  for (size_t w = 0; w < words_.size(); ++w) {
    EachBit(words_[w], [&](int bit, int64_t) { places.push_back(w * kWord + bit); });
  }
  return places;
}

int64_t GatherEntries(const EntrySet& set, int64_t begin, int64_t end, const float* all, float* out,
                      GatherPath path) {
  const auto bits = [&](uint64_t word, int64_t at, int64_t done) {
    return Gathering::Bits(word, all + at, out + done);
  };
#ifdef TESSERA_ENTRY_SET_X86
  if (path == GatherPath::kAvx512) {
    return ForRange(set, begin, end, bits,
                    [&](const uint64_t* words, int64_t count, int64_t at, int64_t done) {
                      return GatherWords(words, count, all + at, out + done);
                    });
  }
#endif
  return ForRange(set, begin, end, bits, BitByBit(bits));
}

int64_t ScatterEntries(const EntrySet& set, int64_t begin, int64_t end, const float* values,
                       float* all, GatherPath path) {
  const auto bits = [&](uint64_t word, int64_t at, int64_t done) {
    return Scattering::Bits(word, all + at, values + done);
  };
#ifdef TESSERA_ENTRY_SET_X86
  if (path == GatherPath::kAvx512) {
    return ForRange(set, begin, end, bits,
                    [&](const uint64_t* words, int64_t count, int64_t at, int64_t done) {
                      return PutWords<false>(words, count, values + done, all + at);
                    });
  }
#endif
  return ForRange(set, begin, end, bits, BitByBit(bits));
}

int64_t AddEntries(const EntrySet& set, int64_t begin, int64_t end, const float* values, float* all,
                   GatherPath path) {
  const auto bits = [&](uint64_t word, int64_t at, int64_t done) {
    return Adding::Bits(word, all + at, values + done);
  };
#ifdef TESSERA_ENTRY_SET_X86
  if (path == GatherPath::kAvx512) {
    return ForRange(set, begin, end, bits,
                    [&](const uint64_t* words, int64_t count, int64_t at, int64_t done) {
                      return PutWords<true>(words, count, values + done, all + at);
                    });
  }
#endif
  return ForRange(set, begin, end, bits, BitByBit(bits));
}

EntryWalk::Run EntryWalk::Next(int64_t end, int64_t count_max) {
  Run run;
  run.begin = run.end = place_;
  while (run.end < end) {
    const int64_t word = run.end / kWord;
    const int64_t stop = std::min(end, (word + 1) * kWord);
    uint64_t bits = set_->words()[word] & BitRange(run.end - word * kWord, stop - word * kWord);
    const int64_t count = CountBits(bits);
    if (run.count + count <= count_max) {
      run.count += count;
      run.end = stop;
      continue;
    }
    // The run ends before the first bit that is too many.
    for (int64_t room = count_max - run.count; room > 0; --room) bits &= bits - 1;
    run.end = word * kWord + __builtin_ctzll(bits);
    run.count = count_max;
    break;
  }
  place_ = run.end;
  left_ -= run.count;
  return run;
}

}  // namespace tessera
