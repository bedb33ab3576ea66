// Which server owns which rows: every parameter is cut into contiguous runs of rows, one per
// server.
//
// Server s of M owns rows [rows * s / M, rows * (s + 1) / M) of each parameter (integer division),
// so that every server owns about 1/M of everything and nobody needs a table. With more servers
// than rows some own none of that parameter, which is no special case anywhere. Where a job keeps
// its linear layers' parameters on servers of their own, M are those that share the parameter.
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

// Servers [begin, end), which share the rows of a parameter.
struct Owners {
  int begin = 0;
  int end = 1;

  int count() const { return end - begin; }
  friend bool operator==(const Owners& a, const Owners& b) {
    return a.begin == b.begin && a.end == b.end;
  }
};

// The shards of a job, and which of them share what.
struct Sharding {
  // All of `count` shards share every parameter.
  Sharding(int count = 1) : count(count) {}  // NOLINT(google-explicit-constructor): the usual case

  int count;
  // Parameters from this one on are shared by the last `last` shards alone, those in front of it by all others.
  // `last` is below `count`; 0: all share all.
  int cut = 0;
  int last = 0;

  Owners OwnersOf(int parameter) const;
};

// The rows of a parameter of so many that a shard owns.
struct ShardRows {
  int64_t begin = 0;
  int64_t end = 0;
};
ShardRows RowsOf(int64_t rows, int64_t shard, const Owners& owners);

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

ShardSlices SlicesOf(const ModelShape& shape, ShardId shard, const Sharding& sharding);

// The bytes of the largest shard, to within a row of each parameter.
int64_t LargestShardBytes(const ModelShape& shape, const Sharding& sharding);

// An entry of the dense order in words: "layers.0.weight[12, 5]".
std::string DescribeEntry(const ModelShape& shape, const ShardSlices& slices, int64_t entry);

// A hash of names, shapes and the sharding: two processes with the same value agree on where every
// entry lives and what the dense order is.
uint64_t LayoutHash(const ModelShape& shape, const Sharding& sharding);

}  // namespace tessera

#endif  // TESSERA_COMMON_LAYOUT_SHARD_MAP_H_
