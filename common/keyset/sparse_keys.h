// A core, and the entries that one worker's exchange moves on one server: the core and an explorer.
#ifndef TESSERA_COMMON_KEYSET_SPARSE_KEYS_H_
#define TESSERA_COMMON_KEYSET_SPARSE_KEYS_H_

#include <cstdint>
#include <memory>
#include <utility>

#include "common/keyset/core_share.h"
#include "common/keyset/entry_keys.h"
#include "common/keyset/entry_set.h"
#include "common/keyset/explorer.h"

namespace tessera {

// How a message names a core.
struct CoreName {
  uint64_t number = 0;
  KeySignature signature;

  friend bool operator==(const CoreName& a, const CoreName& b) {
    return a.number == b.number && a.signature == b.signature;
  }
};

// One server's part of a core.
struct Core {
  CoreName name;
  EntrySet keys;
};

// Both are constant, and may be held for as long as anybody likes.
struct SparseKeys {
  std::shared_ptr<const Core> core;
  // The entries of the core and of the explorer.
  EntrySet entries;
  // What the exchange moves on all servers together, or some entries more.
  int64_t on_all = 0;
};

// Draws the explorer of `place` in a model of `entries`, and joins it with the core.
inline SparseKeys DrawKeys(const CoreShare& share, const ExplorerPlace& place, int64_t entries,
                           std::shared_ptr<const Core> core) {
  const EntrySet& keys = core->keys;
  const EntrySet explorer =
      DrawExplorer(place, keys, ExplorerCount(share, entries, keys.size(), keys.count()));
  EntrySet joined = EntrySet::Joined(keys, explorer);
  return {std::move(core), std::move(joined), EntriesOf(share.alpha, entries)};
}

}  // namespace tessera

#endif  // TESSERA_COMMON_KEYSET_SPARSE_KEYS_H_
