#include "common/layout/shard_map.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"

namespace tessera {

int ShardCount(Placement placement, int servers) {
  return placement == Placement::kReplicated ? 1 : servers;
}

ShardId ShardAt(Placement placement, int server) {
  return ShardId(placement == Placement::kReplicated ? 0 : server);
}

Owners Sharding::OwnersOf(int parameter) const {
  if (last == 0) return {0, count};
  return parameter < cut ? Owners{0, count - last} : Owners{count - last, count};
}

ShardRows RowsOf(int64_t rows, int64_t shard, const Owners& owners) {
  if (shard < owners.begin || shard >= owners.end) return {};
  // One rule for all servers: consecutive rows, as evenly as whole rows allow. Products of 2^44 rows and 256 servers
  // fit 64 bits.
  const int64_t place = shard - owners.begin;
  return {rows * place / owners.count(), rows * (place + 1) / owners.count()};
}

ShardSlices SlicesOf(const ModelShape& shape, ShardId shard, const Sharding& sharding) {
  TESSERA_CHECK(sharding.count >= 1 && shard.value() < static_cast<uint64_t>(sharding.count));
  TESSERA_CHECK(0 <= sharding.last && sharding.last < sharding.count);
  ShardSlices result;
  result.shard = shard;
  result.shard_count = sharding.count;
  const int64_t s = static_cast<int64_t>(shard.value());
  for (int i = 0; i < static_cast<int>(shape.parameters.size()); ++i) {
    const ParameterSpec& spec = shape.parameters[i];
    Slice slice;
    slice.parameter = i;
    const ShardRows rows = RowsOf(spec.rows, s, sharding.OwnersOf(i));
    slice.row_begin = rows.begin;
    slice.row_end = rows.end;
    slice.columns = spec.columns;
    slice.offset = result.size;
    if (slice.size() == 0) continue;
    result.size += slice.size();
    result.slices.push_back(slice);
  }
  return result;
}

int64_t LargestShardBytes(const ModelShape& shape, const Sharding& sharding) {
  int64_t front = 0;
  for (int i = 0; sharding.last > 0 && i < sharding.cut; ++i) {
    front += shape.parameters[static_cast<size_t>(i)].size();
  }
  const int64_t bytes = static_cast<int64_t>(sizeof(float));
  if (sharding.last == 0) return shape.size * bytes / sharding.count;
  return std::max(front * bytes / (sharding.count - sharding.last),
                  (shape.size - front) * bytes / sharding.last);
}

std::string DescribeEntry(const ModelShape& shape, const ShardSlices& slices, int64_t entry) {
  const auto slice = std::find_if(slices.slices.begin(), slices.slices.end(),
                                  [&](const Slice& s) { return entry < s.offset + s.size(); });
  const int64_t within = entry - slice->offset;
  return absl::StrCat(shape.parameters[slice->parameter].name, "[",
                      slice->row_begin + within / slice->columns, ", ", within % slice->columns,
                      "]");
}

uint64_t LayoutHash(const ModelShape& shape, const Sharding& sharding) {
  std::string text = absl::StrCat("servers=", sharding.count, "\n");
  if (sharding.last > 0) {
    absl::StrAppend(&text, "last=", sharding.last, " from ", sharding.cut, "\n");
  }
  for (const ParameterSpec& spec : shape.parameters) {
    absl::StrAppend(&text, spec.name, "=", spec.rows, "x", spec.columns, "\n");
  }
  uint64_t hash = 0xcbf29ce484222325u;  // FNV-1a, 64 bits
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return hash;
}

}  // namespace tessera
