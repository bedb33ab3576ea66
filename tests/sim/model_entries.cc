#include "tests/sim/model_entries.h"

#include <numeric>

namespace tessera {

EntryNumbers NumbersOf(const ModelShape& shape) {
  EntryNumbers numbers;
  int64_t next = 0;
  for (const ParameterSpec& spec : shape.parameters) {
    numbers.emplace_back(spec.size());
    std::iota(numbers.back().begin(), numbers.back().end(), next);
    next += spec.size();
  }
  return numbers;
}

std::vector<int64_t> NumbersIn(const EntryNumbers& numbers, const ShardSlices& slices) {
  std::vector<int64_t> all;
  for (const Slice& slice : slices.slices) {
    const std::vector<int64_t>& of = numbers[slice.parameter];
    all.insert(all.end(), of.begin() + slice.row_begin * slice.columns,
               of.begin() + slice.row_end * slice.columns);
  }
  return all;
}

}  // namespace tessera
