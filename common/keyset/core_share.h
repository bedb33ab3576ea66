// How many entries are core and how many explorer, on each server: both ends compute it.
#ifndef TESSERA_COMMON_KEYSET_CORE_SHARE_H_
#define TESSERA_COMMON_KEYSET_CORE_SHARE_H_

#include <cmath>
#include <cstdint>

namespace tessera {

// The shares of all entries that an exchange moves. 0 <= beta <= alpha <= 1.
struct CoreShare {
  double alpha = 0;  // core and explorer
  double beta = 0;   // core
  // Exchanges that a core is for. The last of them pushes all entries, and the next core follows
  // from that.
  uint64_t every = 1;
  // The weight c of |g| in the significance |w| + c |g|; 0: sum |w| / sum |g|.
  double gradient_weight = 0;

  // Every exchange is of all entries.
  bool is_whole() const { return alpha >= 1; }
};

// floor(share n), but for the rounding of the product itself: 0.1 of 30 is 3.
inline int64_t EntriesOf(double share, int64_t entries) {
  return static_cast<int64_t>(std::floor(share * static_cast<double>(entries) + 1e-6));
}

// The core's entries, of a model of so many.
inline int64_t CoreCount(const CoreShare& share, int64_t entries) {
  return EntriesOf(share.beta, entries);
}

// Returns how many of the explorer's (alpha - beta) n entries a server has that owns `owned` entries of which `core`
// are core: in proportion to what it has outside the core, rounded down. Every entry is as likely as any other within
// one entry per server, and the sum over servers is at most the whole.
inline int64_t ExplorerCount(const CoreShare& share, int64_t entries, int64_t owned, int64_t core) {
  const int64_t all_core = CoreCount(share, entries);
  const int64_t explorer = EntriesOf(share.alpha, entries) - all_core;
  const int64_t outside = entries - all_core;
  if (explorer <= 0 || outside == 0) return 0;
  return static_cast<int64_t>(static_cast<__int128>(explorer) * (owned - core) / outside);
}

// The core that is for `exchange`, counted from 0, where all members make the same exchange.
inline uint64_t CoreOf(const CoreShare& share, uint64_t exchange) {
  return (exchange - 1) / share.every;
}
// Whether the push of `exchange` is of all entries, from which servers select the next core.
inline bool PushesAll(const CoreShare& share, uint64_t exchange) {
  return exchange % share.every == 0;
}

}  // namespace tessera

#endif  // TESSERA_COMMON_KEYSET_CORE_SHARE_H_
