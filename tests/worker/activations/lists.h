// Lists of workers that train different layers, for tests.
#ifndef TESSERA_TESTS_WORKER_ACTIVATIONS_LISTS_H_
#define TESSERA_TESTS_WORKER_ACTIVATIONS_LISTS_H_

#include <set>

#include "absl/strings/str_cat.h"
#include "common/method/recipe.h"
#include "proto/peers.pb.h"

namespace tessera {

// Rank r is member r + 1.
inline MemberId MemberAt(uint64_t rank) { return MemberId(rank + 1); }

inline LayerSplit SplitOf(int front, int linear) {
  LayerSplit split;
  split.front_workers = front;
  split.linear_workers = linear;
  return split;
}

// All ranks of `split` but those that are gone.
inline v1::WorkerList ListOf(const LayerSplit& split, uint64_t generation,
                             const std::set<uint64_t>& gone = {}) {
  v1::WorkerList list;
  list.set_generation(generation);
  for (int rank = 0; rank < split.front_workers + split.linear_workers; ++rank) {
    if (gone.count(static_cast<uint64_t>(rank)) > 0) continue;
    v1::WorkerEntry& entry = *list.add_workers();
    entry.set_member(MemberAt(static_cast<uint64_t>(rank)).value());
    entry.set_rank(static_cast<uint32_t>(rank));
    entry.set_address(absl::StrCat("host-", rank, ":1"));
  }
  return list;
}

}  // namespace tessera

#endif  // TESSERA_TESTS_WORKER_ACTIVATIONS_LISTS_H_
