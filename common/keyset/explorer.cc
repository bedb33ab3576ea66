#include "common/keyset/explorer.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "common/base/check.h"
#include "common/base/limits.h"
#include "common/base/philox_blocks.h"
#include "common/base/vector_clones.h"
#include "common/keyset/word_bits.h"

#if defined(__GNUC__) && defined(__x86_64__)
#include <immintrin.h>
#define TESSERA_EXPLORER_X86 1
#endif

namespace tessera {
namespace {

using Words = std::vector<uint64_t>;

// floor(random * end / 2^64): even over [0, end) but for 2^-64 * end, which no job can notice.
uint64_t Below(uint64_t random, uint64_t end) {
  return static_cast<uint64_t>(static_cast<unsigned __int128>(random) * end >> 64);
}

// Blocks that are computed side by side, and what is drawn from them.
constexpr int kBlocks = 16;
constexpr int kDraws = 2 * kBlocks;

// The random numbers of draws first .. first + kDraws - 1, `first` being even.
TESSERA_VECTOR_CLONES
void FillRandom(uint64_t seed, uint64_t a, uint64_t first, uint64_t* out) {
  PhiloxBlocks<kBlocks> blocks;
  FillPhiloxBlocks(seed, Stream::kExplorer, a, first / 2, &blocks);
  for (int i = 0; i < kBlocks; ++i) {
    out[2 * i] = blocks.word[0][i] | static_cast<uint64_t>(blocks.word[1][i]) << 32;
    out[2 * i + 1] = blocks.word[2][i] | static_cast<uint64_t>(blocks.word[3][i]) << 32;
  }
}

// `count` of [0, size), as bits.
Words Draw(const ExplorerPlace& place, int64_t size, int64_t count) {
  const uint64_t a =
      (place.exchange.value() & 0xffffffffu) | place.rank.value() << 32 | place.shard.value() << 48;
  Words drawn((size + 63) / 64);
  uint64_t wanted[kDraws];
  for (int64_t first = 0; first < count; first += kDraws) {
    FillRandom(place.seed, a, static_cast<uint64_t>(first), wanted);
    const int64_t draws = std::min<int64_t>(kDraws, count - first);
    const uint64_t last = static_cast<uint64_t>(size - count + first);
    for (int64_t i = 0; i < draws; ++i) {
      // Robert Floyd's sampling: draw j is among [0, j], and j itself is taken where what was drawn is taken already.
      // Each set of `count` is equally likely, in `count` draws and no retries.
      wanted[i] = Below(wanted[i], last + static_cast<uint64_t>(i) + 1);
      // The bits of all draws are fetched ahead, as they lie anywhere in a set of megabytes.
      __builtin_prefetch(&drawn[wanted[i] / 64], 1);
    }
    for (int64_t i = 0; i < draws; ++i) {
      const bool is_taken = (drawn[wanted[i] / 64] >> wanted[i] % 64 & 1) != 0;
      const uint64_t taken = is_taken ? last + static_cast<uint64_t>(i) : wanted[i];
      drawn[taken / 64] |= uint64_t{1} << taken % 64;
    }
  }
  return drawn;
}

// The bits of `bits`, from the lowest on, where the bits of `places` are.
uint64_t DepositScalar(uint64_t bits, uint64_t places) {
  uint64_t out = 0;
  for (; places != 0; places &= places - 1, bits >>= 1) {
    if ((bits & 1) != 0) out |= places & -places;
  }
  return out;
}

#ifdef TESSERA_EXPLORER_X86
__attribute__((target("bmi2"))) uint64_t DepositBmi2(uint64_t bits, uint64_t places) {
  return _pdep_u64(bits, places);
}
#endif

using Deposit = uint64_t (*)(uint64_t bits, uint64_t places);

Deposit BestDeposit() {
#ifdef TESSERA_EXPLORER_X86
  if (__builtin_cpu_supports("bmi2")) return DepositBmi2;
#endif
  return DepositScalar;
}

// 64 bits of `words` from bit `at` on; beyond the last there are zeros.
uint64_t BitsFrom(const Words& words, int64_t at) {
  const size_t word = static_cast<size_t>(at / 64);
  uint64_t bits = word < words.size() ? words[word] >> at % 64 : 0;
  if (at % 64 != 0 && word + 1 < words.size()) bits |= words[word + 1] << (64 - at % 64);
  return bits;
}

}  // namespace

EntrySet DrawExplorer(const ExplorerPlace& place, const EntrySet& core, int64_t count) {
  const int64_t outside = core.size() - core.count();
  TESSERA_CHECK(count >= 0 && count <= outside);
  TESSERA_CHECK(place.rank.value() < kRankEnd && place.shard.value() < kServersMax);
  if (count == 0) return EntrySet(core.size());
  // Drawing the smaller side bounds the work by half of the entries.
  const bool leaves_out = count > outside / 2;
  const Words drawn = Draw(place, outside, leaves_out ? outside - count : count);
  Words explorer(core.words().size());
  const Deposit deposit = BestDeposit();
  int64_t at = 0;
  for (size_t w = 0; w < explorer.size(); ++w) {
    // Ranks among the entries outside the core are spread over their places, a word at a time.
    uint64_t places = ~core.words()[w];
    const bool is_last = w + 1 == explorer.size() && core.size() % 64 != 0;
    if (is_last) places &= (uint64_t{1} << core.size() % 64) - 1;
    explorer[w] = deposit(BitsFrom(drawn, at), places);
    if (leaves_out) explorer[w] ^= places;
    at += CountBits(places);
  }
  return EntrySet(core.size(), std::move(explorer));
}

}  // namespace tessera
