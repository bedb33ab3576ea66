#include "kernels/sparse_columns.h"

#include "common/base/check.h"

namespace tessera {

void SparseColumns::Find(const LinearShape& shape, const SparseRows& x) {
  first_ = shape.rows > 0 ? x.begin[0] : 0;
  entries_ = shape.rows > 0 ? x.begin[shape.rows] - first_ : 0;
  if (static_cast<int64_t>(place_.size()) < shape.inputs) {
    place_.resize(shape.inputs);
    present_.resize((shape.inputs + 63) / 64);
  }
  // Presence is a bit per column. Walking the bits yields the columns in ascending order without a sort.
  columns_.clear();
  for (int64_t e = first_; e < first_ + entries_; ++e) {
    const int32_t c = x.column[e];
    TESSERA_CHECK(c >= 0 && c < shape.inputs);
    present_[c / 64] |= uint64_t{1} << c % 64;
  }
  for (int64_t word = 0; word < (shape.inputs + 63) / 64; ++word) {
    for (uint64_t bits = present_[word]; bits != 0; bits &= bits - 1) {
      const int64_t c = word * 64 + __builtin_ctzll(bits);
      place_[c] = static_cast<int32_t>(columns_.size());
      columns_.push_back(static_cast<int32_t>(c));
    }
    present_[word] = 0;
  }
}

void SparseColumns::PlaceEntries(const SparseRows& x) {
  slot_.resize(entries_);
  for (int64_t e = 0; e < entries_; ++e) slot_[e] = place_[x.column[first_ + e]];
}

void SparseColumns::SortByColumn(const LinearShape& shape, const SparseRows& x) {
  ByColumn& sorted = by_column_;
  sorted.begin.assign(columns_.size() + 2, 0);
  sorted.row.resize(entries_);
  sorted.value.resize(entries_);
  // Counts two places ahead, so that filling leaves each beginning where it belongs.
  for (int64_t e = first_; e < first_ + entries_; ++e) ++sorted.begin[place_[x.column[e]] + 2];
  for (size_t i = 2; i < sorted.begin.size(); ++i) sorted.begin[i] += sorted.begin[i - 1];
  for (int64_t row = 0; row < shape.rows; ++row) {
    for (int64_t e = x.begin[row]; e < x.begin[row + 1]; ++e) {
      const int64_t to = sorted.begin[place_[x.column[e]] + 1]++;
      sorted.row[to] = static_cast<int32_t>(row);
      sorted.value[to] = x.value[e];
    }
  }
}

}  // namespace tessera
