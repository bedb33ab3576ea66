// Which server owns which rows: every parameter is cut into contiguous runs of rows, one per
// server.
//
// Server s of M owns rows [rows * s / M, rows * (s + 1) / M) of each parameter (integer division),
// so that every server owns about 1/M of everything and nobody needs a table. With more servers
// than rows some own none of that parameter, which is no special case anywhere.
#ifndef TESSERA_COMMON_LAYOUT_SHARD_MAP_H_
#define TESSERA_COMMON_LAYOUT_SHARD_MAP_H_

#include <cstdint>
#include <string>
#include <vector>

#include "common/base/ids.h"
#include "common/layout/parameters.h"

namespace tessera {

// Where entries live.
enum class Placement {
  kSharded,     // each row on one server
  kReplicated,  // all of them on every server
};

// How many shards so many servers make, and which of them `server` has: with replicated placement every
// server has shard 0 of 1.
int ShardCount(Placement placement, int servers);
ShardId ShardAt(Placement placement, int server);

// One shard's rows of one parameter.
struct Slice {
  int parameter = 0;  // index into ModelShape.parameters
  int64_t row_begin = 0;
  int64_t row_end = 0;
  int64_t columns = 1;
  // Where it begins in the shard's dense order, in entries.
  int64_t offset = 0;

  int64_t size() const { return (row_end - row_begin) * columns; }
};

// All that one server owns, in the dense order: by parameter, then row, then column.
struct ShardSlices {
  ShardId shard;
  int shard_count = 1;
  std::vector<Slice> slices;  // empty ones are left out
  int64_t size = 0;           // entries
  int64_t bytes() const { return size * static_cast<int64_t>(sizeof(float)); }
};

ShardSlices SlicesOf(const ModelShape& shape, ShardId shard, int shard_count);

// An entry of the dense order in words: "layers.0.weight[12, 5]".
std::string DescribeEntry(const ModelShape& shape, const ShardSlices& slices, int64_t entry);

// A hash of names, shapes and the number of shards: two processes with the same value agree on
// where every entry lives and what the dense order is.
uint64_t LayoutHash(const ModelShape& shape, int shard_count);

}  // namespace tessera

#endif  // TESSERA_COMMON_LAYOUT_SHARD_MAP_H_
