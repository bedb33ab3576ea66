// The columns that occur in a batch of sparse rows, worked out by the host for any device.
#ifndef TESSERA_KERNELS_SPARSE_COLUMNS_H_
#define TESSERA_KERNELS_SPARSE_COLUMNS_H_

#include <cstdint>
#include <vector>

#include "kernels/sparse_linear.h"

namespace tessera {

// Buffers grow at first use and stay. One thread.
class SparseColumns {
 public:
  // Sets columns() and entries(). O(entries + inputs / 64).
  void Find(const LinearShape& shape, const SparseRows& x);
  // Sets slot(), or by_column(), for the rows of the last Find.
  void PlaceEntries(const SparseRows& x);
  void SortByColumn(const LinearShape& shape, const SparseRows& x);

  // Ascending.
  const std::vector<int32_t>& columns() const { return columns_; }
  int64_t present() const { return static_cast<int64_t>(columns_.size()); }
  // The entries of all rows together, from first_entry() on in the arrays of the batch.
  int64_t entries() const { return entries_; }
  int64_t first_entry() const { return first_; }
  // For each entry, from the first on: the index of its column in columns().
  const std::vector<int32_t>& slot() const { return slot_; }

  // The entries by columns, rows ascending: column i has [begin[i], begin[i + 1]).
  struct ByColumn {
    std::vector<int64_t> begin;
    std::vector<int32_t> row;
    std::vector<float> value;
  };
  const ByColumn& by_column() const { return by_column_; }

 private:
  int64_t first_ = 0;
  int64_t entries_ = 0;
  std::vector<int32_t> columns_;
  std::vector<int32_t> place_;     // by input: its index in columns_, where it occurs
  std::vector<uint64_t> present_;  // a bit for each input; all 0 between calls
  std::vector<int32_t> slot_;
  ByColumn by_column_;
};

}  // namespace tessera

#endif  // TESSERA_KERNELS_SPARSE_COLUMNS_H_
