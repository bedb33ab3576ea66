#include "common/layout/fragment.h"

#include <algorithm>

#include "common/base/check.h"

namespace tessera {
namespace {

// Where fragment `number` begins: at the end of a row that is next to number / count of the entries. `number` may be
// `count`, which is the end of all.
int64_t Boundary(const ShardSlices& all, int64_t number, int64_t count) {
  if (number == count) return all.size;
  // In two parts, as size * number may overflow.
  const int64_t wanted = all.size / count * number + all.size % count * number / count;
  for (const Slice& slice : all.slices) {
    // Half a row and more is the fragment's before.
    if (wanted >= slice.offset + slice.size()) continue;
    const int64_t row = (wanted - slice.offset + slice.columns / 2) / slice.columns;
    return slice.offset + row * slice.columns;
  }
  return all.size;
}

}  // namespace

Fragment FragmentOf(Exchange exchange, int count) {
  TESSERA_CHECK(exchange.value() > 0 && count > 0);
  return {static_cast<int>((exchange.value() - 1) % static_cast<uint64_t>(count)), count};
}

int64_t BeginOf(const ShardSlices& all, const Fragment& fragment) {
  return Boundary(all, fragment.number, fragment.count);
}

ShardSlices SlicesOfFragment(const ShardSlices& all, const Fragment& fragment) {
  TESSERA_CHECK(fragment.number >= 0 && fragment.number < fragment.count);
  const int64_t first = Boundary(all, fragment.number, fragment.count);
  const int64_t last = Boundary(all, fragment.number + 1, fragment.count);
  ShardSlices result;
  result.shard = all.shard;
  result.shard_count = all.shard_count;
  for (Slice slice : all.slices) {
    const int64_t begin = std::max(first, slice.offset);
    const int64_t end = std::min(last, slice.offset + slice.size());
    if (begin >= end) continue;
    // Both are ends of rows.
    slice.row_end = slice.row_begin + (end - slice.offset) / slice.columns;
    slice.row_begin += (begin - slice.offset) / slice.columns;
    slice.offset = result.size;
    result.size += slice.size();
    result.slices.push_back(slice);
  }
  TESSERA_CHECK(result.size == last - first);
  return result;
}

}  // namespace tessera
