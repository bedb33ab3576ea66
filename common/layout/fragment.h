// A model cut into fragments of about equal size, which exchanges move one after the other.
//   Douillard et al., Streaming DiLoCo with overlapping communication, arXiv 2501.18512, section 3.1
//
// Every server's entries are cut for themselves, at ends of rows, so that each fragment is on every server that has
// rows enough, and every link carries as much of it.
#ifndef TESSERA_COMMON_LAYOUT_FRAGMENT_H_
#define TESSERA_COMMON_LAYOUT_FRAGMENT_H_

#include <cstdint>

#include "common/base/ids.h"
#include "common/layout/shard_map.h"

namespace tessera {

// One of `count` fragments, counted from 0.
struct Fragment {
  int number = 0;
  int count = 1;

  friend bool operator==(const Fragment& a, const Fragment& b) {
    return a.number == b.number && a.count == b.count;
  }
};

// The fragment that exchange 1, 2, ... moves: they take turns.
Fragment FragmentOf(Exchange exchange, int count);

// Where the fragment begins among the entries that a shard owns, in its dense order; an empty fragment, too.
int64_t BeginOf(const ShardSlices& all, const Fragment& fragment);

// What a shard owns of the fragment, out of all that it owns; offsets count from the first of these entries. It has
// the size of all / count to within a row, and none where rows are fewer.
ShardSlices SlicesOfFragment(const ShardSlices& all, const Fragment& fragment);

}  // namespace tessera

#endif  // TESSERA_COMMON_LAYOUT_FRAGMENT_H_
