#include "server/shard/stored_values.h"

#include <xxhash.h>

#include <vector>

namespace tessera {
namespace {

uint64_t HashOfRow(const Slice& slice, int64_t row, const float* values) {
  const uint64_t name = static_cast<uint64_t>(slice.parameter) << 40 | static_cast<uint64_t>(row);
  return XXH3_64bits_withSeed(values, slice.columns * sizeof(float), name);
}

}  // namespace

void FillInitial(const ModelShape& shape, const ShardSlices& slices, uint64_t seed,
                 BlockStore* store) {
  int block = 0;
  for (const Slice& slice : slices.slices) {
    const int64_t slice_end = slice.offset + slice.size();
    int64_t row = slice.row_begin;
    for (; block < store->block_count() && store->offset(block) < slice_end; ++block) {
      const BlockStore::Rewrite write = store->BeginRewrite(block);
      const int64_t rows = write.size / slice.columns;
      FillInitialRows(shape.parameters[slice.parameter], slice.parameter, seed, row, row + rows,
                      write.out);
      row += rows;
    }
  }
}

uint64_t InitialHash(const ModelShape& shape, const ShardSlices& slices, uint64_t seed) {
  uint64_t sum = 0;
  std::vector<float> values;
  for (const Slice& slice : slices.slices) {
    values.resize(slice.columns);
    for (int64_t row = slice.row_begin; row < slice.row_end; ++row) {
      FillInitialRows(shape.parameters[slice.parameter], slice.parameter, seed, row, row + 1,
                      values.data());
      sum += HashOfRow(slice, row, values.data());
    }
  }
  return sum;
}

uint64_t HashOf(const BlockStore& store, const ShardSlices& slices) {
  uint64_t sum = 0;
  int block = 0;
  for (const Slice& slice : slices.slices) {
    const int64_t slice_end = slice.offset + slice.size();
    int64_t row = slice.row_begin;
    for (; block < store.block_count() && store.offset(block) < slice_end; ++block) {
      const Block& b = store.block(block);
      for (int64_t begin = 0; begin < b.size(); begin += slice.columns, ++row) {
        sum += HashOfRow(slice, row, b.data() + begin);
      }
    }
  }
  return sum;
}

}  // namespace tessera
