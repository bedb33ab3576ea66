// What a PlaceSet has beside its words.
#ifndef TESSERA_KERNELS_PLACE_RANKS_H_
#define TESSERA_KERNELS_PLACE_RANKS_H_

#include <cstdint>
#include <vector>

#include "kernels/exchange.h"

namespace tessera {

struct PlaceRanks {
  std::vector<int64_t> ranks;
  std::vector<uint64_t> steps;

  // Makes ranks of marks, 64 places a word.
  explicit PlaceRanks(const std::vector<uint64_t>& words) {
    static_assert(PlaceSet::kRankPlaces == 8 * 32);
    constexpr size_t kWords = PlaceSet::kRankPlaces / 64;
    int64_t rank = 0;
    for (size_t w = 0; w < words.size(); ++w) {
      if (w % kWords == 0) {
        ranks.push_back(rank);
        steps.push_back(0);
      }
      const auto half = static_cast<uint32_t>(words[w]);
      // Up to 7 * 32, which a byte holds.
      const auto before = static_cast<uint64_t>(rank - ranks.back());
      const uint64_t behind = before + static_cast<uint64_t>(__builtin_popcount(half));
      steps.back() |= (before | behind << 8) << 16 * (w % kWords);
      rank += __builtin_popcountll(words[w]);
    }
  }
};

}  // namespace tessera

#endif  // TESSERA_KERNELS_PLACE_RANKS_H_
