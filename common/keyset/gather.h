// Some columns of a row, taken together and put back.
//
//   one run     copied
//   AVX-512     16 columns at a time: compressed (gather) or expanded (scatter) by a bit mask
//   AVX2        8 at a time: gathered through a table of permutations; scattered one by one
//   otherwise   one by one, as are columns so few that most groups of 16 hold none
//
// A half of the columns, or an eighth, touches nearly every cache line of the row, so reading all of
// it in order costs what the lines cost; gather instructions would cost more than that.
#ifndef TESSERA_COMMON_KEYSET_GATHER_H_
#define TESSERA_COMMON_KEYSET_GATHER_H_

#include <cstdint>
#include <vector>

namespace tessera {

enum class GatherPath { kScalar, kAvx2, kAvx512 };

// Returns the fastest path that this CPU has.
GatherPath BestGatherPath();

// Constant after construction; any thread. All paths give the same bits.
class ColumnSet {
 public:
  // `columns` ascending and below `width`. `path` must be one that the CPU has.
  ColumnSet(const std::vector<int32_t>& columns, int64_t width, GatherPath path = BestGatherPath());

  int64_t size() const { return size_; }
  bool is_whole() const { return is_run_ && size_ == width_; }

  // out[i - begin] = row[columns[i]] for i in [begin, end).
  void Gather(const float* row, int64_t begin, int64_t end, float* out) const;
  // row[columns[i]] = values[i] for all i. Other entries are neither read nor written.
  void Scatter(const float* values, float* row) const;

 private:
  const int64_t width_;
  const int64_t size_;
  bool is_run_ = false;
  GatherPath path_;
  std::vector<int32_t> columns_;
  // By group of 16 columns: which of them are in the set.
  std::vector<uint16_t> masks_;
  // Groups from the front after whose first column a whole register's worth of the set follows: it
  // may be read or written at once.
  int64_t roomy_groups_ = 0;
};

}  // namespace tessera

#endif  // TESSERA_COMMON_KEYSET_GATHER_H_
