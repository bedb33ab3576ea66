#include "worker/exchange/fragment_keys.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "common/layout/fragment.h"

namespace tessera {
namespace {

using Run = FragmentKeys::Run;

// The entries of all servers' slices, those that follow one another as one run.
std::vector<Run> RunsOf(const KeySet& keys) {
  std::vector<Run> runs;
  for (const ShardSlices& slices : keys.slices) {
    for (const Slice& slice : slices.slices) {
      runs.push_back(
          {static_cast<size_t>(slice.parameter), slice.row_begin * slice.columns, slice.size()});
    }
  }
  std::sort(runs.begin(), runs.end(), [](const Run& a, const Run& b) {
    return std::tie(a.parameter, a.offset) < std::tie(b.parameter, b.offset);
  });
  // Rows of one parameter on neighbouring servers follow one another in the worker's array.
  std::vector<Run> joined;
  for (const Run& run : runs) {
    const bool follows = !joined.empty() && joined.back().parameter == run.parameter &&
                         joined.back().offset + joined.back().size == run.offset;
    if (follows) {
      joined.back().size += run.size;
    } else {
      joined.push_back(run);
    }
  }
  return joined;
}

}  // namespace

FragmentKeys::FragmentKeys(const ModelShape& shape, int servers, const FragmentTurns& turns,
                           Exchange first)
    : alpha_(turns.alpha),
      dense_(DenseKeys(shape, servers)),
      next_(static_cast<size_t>(FragmentOf(first, turns.count).number)) {
  for (int number = 0; number < turns.count; ++number) {
    Part part;
    part.keys = KeysOfFragment(shape, servers, {number, turns.count});
    part.runs = RunsOf(part.keys);
    fragments_.push_back(std::move(part));
  }
}

absl::Span<const Run> FragmentKeys::PushedOf(size_t parameter) const {
  const std::vector<Run>& runs = next().runs;
  const auto begin =
      std::lower_bound(runs.begin(), runs.end(), parameter,
                       [](const Run& run, size_t wanted) { return run.parameter < wanted; });
  const auto end = std::find_if(begin, runs.end(),
                                [parameter](const Run& run) { return run.parameter != parameter; });
  return absl::MakeConstSpan(runs).subspan(static_cast<size_t>(begin - runs.begin()),
                                           static_cast<size_t>(end - begin));
}

void FragmentKeys::Begin() {
  begun_ = next_;
  Advance();
}

absl::Span<const Run> FragmentKeys::End() {
  const std::vector<Run>& runs = next().runs;
  Advance();
  return runs;
}

void FragmentKeys::TakeUp(int64_t count, const float* incoming, float* now, float* base,
                          Memory* memory, VectorKernel* vector) const {
  const int64_t bytes = count * static_cast<int64_t>(sizeof(float));
  // Without a share of its own the worker has the servers' bits.
  if (alpha_ == 0) {
    memory->Copy(incoming, bytes, now);
  } else {
    vector->Blend(count, 1 - alpha_, incoming, alpha_, now);
  }
  memory->Copy(incoming, bytes, base);
}

}  // namespace tessera
