#include "server/shard/stored_values.h"

#include <xxhash.h>

#include <vector>

#include "common/base/check.h"

namespace tessera {
namespace {

uint64_t HashOfRow(const Slice& slice, int64_t row, const float* values) {
  // The row's place is the seed: equal values of two rows have different hashes, and rows may be summed in any order.
  const uint64_t name = static_cast<uint64_t>(slice.parameter) << 40 | static_cast<uint64_t>(row);
  return XXH3_64bits_withSeed(values, slice.columns * sizeof(float), name);
}

}  // namespace

absl::Status InitialValues::FillRows(int parameter, int64_t row_begin, int64_t row_end,
                                     float* out) const {
  if (file != nullptr && parameter < file->parameters()) {
    return file->FillRows(parameter, row_begin, row_end, out);
  }
  FillInitialRows(shape.parameters[parameter], parameter, seed, row_begin, row_end, out);
  return absl::OkStatus();
}

absl::Status FillInitial(const InitialValues& values, const ShardSlices& slices,
                         BlockStore* store) {
  int block = 0;
  for (const Slice& slice : slices.slices) {
    const int64_t slice_end = slice.offset + slice.size();
    int64_t row = slice.row_begin;
    // Blocks are in the order of slices and rows, each within one slice.
    for (; block < store->block_count() && store->offset(block) < slice_end; ++block) {
      const BlockStore::Rewrite write = store->BeginRewrite(block);
      const int64_t rows = write.size / slice.columns;
      TESSERA_RETURN_IF_ERROR(values.FillRows(slice.parameter, row, row + rows, write.out));
      row += rows;
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<uint64_t> InitialHash(const InitialValues& values, const ShardSlices& slices) {
  uint64_t sum = 0;
  std::vector<float> in_row;
  for (const Slice& slice : slices.slices) {
    // Row by row, without a store: a coordinator compares sums of servers that have other slices.
    in_row.resize(slice.columns);
    for (int64_t row = slice.row_begin; row < slice.row_end; ++row) {
      TESSERA_RETURN_IF_ERROR(values.FillRows(slice.parameter, row, row + 1, in_row.data()));
      sum += HashOfRow(slice, row, in_row.data());
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
