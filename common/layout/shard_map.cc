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

ShardSlices SlicesOf(const ModelShape& shape, ShardId shard, int shard_count) {
  TESSERA_CHECK(shard_count >= 1 && shard.value() < static_cast<uint64_t>(shard_count));
  ShardSlices result;
  result.shard = shard;
  result.shard_count = shard_count;
  const int64_t s = static_cast<int64_t>(shard.value());
  for (int i = 0; i < static_cast<int>(shape.parameters.size()); ++i) {
    const ParameterSpec& spec = shape.parameters[i];
    Slice slice;
    slice.parameter = i;
    slice.row_begin = spec.rows * s / shard_count;
    slice.row_end = spec.rows * (s + 1) / shard_count;
    slice.columns = spec.columns;
    slice.offset = result.size;
    if (slice.size() == 0) continue;
    result.size += slice.size();
    result.slices.push_back(slice);
  }
  return result;
}

std::string DescribeEntry(const ModelShape& shape, const ShardSlices& slices, int64_t entry) {
  const auto slice = std::find_if(slices.slices.begin(), slices.slices.end(),
                                  [&](const Slice& s) { return entry < s.offset + s.size(); });
  const int64_t within = entry - slice->offset;
  return absl::StrCat(shape.parameters[slice->parameter].name, "[",
                      slice->row_begin + within / slice->columns, ", ", within % slice->columns,
                      "]");
}

uint64_t LayoutHash(const ModelShape& shape, int shard_count) {
  std::string text = absl::StrCat("servers=", shard_count, "\n");
  for (const ParameterSpec& spec : shape.parameters) {
    absl::StrAppend(&text, spec.name, "=", spec.rows, "x", spec.columns, "\n");
  }
  uint64_t hash = 0xcbf29ce484222325u;  // FNV-1a, 64 bits
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return hash;
}

}  // namespace tessera
