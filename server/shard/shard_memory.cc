#include "server/shard/shard_memory.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "server/shard/block_store.h"

namespace tessera {
namespace {

// Staging below this is always allowed where memory is not limited, so that small models are not
// held up by accounting.
constexpr int64_t kStagingBytesMin = int64_t{16} << 20;
// How far the number of a site's rows among a server's is from its mean, in standard deviations, in
// one of some million cases.
constexpr double kDeviations = 5;

// What received bytes take: the pieces that they lie in have heads, and the allocator rounds up.
int64_t Received(int64_t bytes) { return bytes + bytes / 8; }

// What SubnetRounds sums the sites' values of shared entries in.
int64_t SharedSums(const NeuronGroups& groups, const ShardSlices& slices) {
  int64_t entries = 0;
  for (const Slice& slice : slices.slices) {
    if (groups.IsShared(slice.parameter)) entries += slice.size();
  }
  return entries * static_cast<int64_t>(sizeof(double));
}

}  // namespace

int64_t LargestPush(const ModelShape& shape, const NeuronGroups& groups, const ShardSlices& slices,
                    int64_t sites, double part) {
  // A site's share of units, as a fraction of 1.
  const double fraction = part / static_cast<double>(sites);
  // How many of so many neurons or rows are the site's.
  const auto owned = [&](int64_t count) {
    return std::min(count, static_cast<int64_t>(std::ceil(static_cast<double>(count) * fraction)));
  };
  int64_t entries = 0;
  for (const Slice& slice : slices.slices) {
    const NeuronGroups::Use& use = groups.uses[slice.parameter];
    int64_t rows = slice.row_end - slice.row_begin;
    if (groups.IsCut(use.rows)) {
      // Rows of a site are a random part of all, of which a server has a slice: binomial, and bounded by so many
      // deviations.
      const double mean = static_cast<double>(rows) * fraction;
      const double most = mean + kDeviations * std::sqrt(mean) + 1;
      const int64_t each = use.row_spread.per_unit();
      const int64_t units = shape.parameters[slice.parameter].rows / each;
      rows = std::min(rows, each * owned(units));
      // Rows of a unit lie together, so that only rows of single units are spread evenly.
      if (each == 1) rows = std::min(rows, static_cast<int64_t>(std::ceil(most)));
    }
    const bool cut_columns = use.columns >= 0 && groups.IsCut(use.columns);
    const int64_t each = use.column_spread.per_unit();
    entries += rows * (cut_columns ? each * owned(slice.columns / each) : slice.columns);
  }
  return entries * static_cast<int64_t>(sizeof(float));
}

int64_t ShardMemory::other_pushes() const { return Received(limits.staging_bytes); }

std::string ShardMemory::Describe() const {
  return absl::StrCat("slice ", slice, " + pending ", pending, " + optimizer state ", states,
                      " + next push ", next_push, " + other pushes ", other_pushes(),
                      " + copies for readers ", limits.copy_bytes);
}

ShardMemory PlanShardMemory(const ShardNeeds& needs, int64_t bytes_max) {
  const bool subnets = needs.groups != nullptr;
  ShardMemory memory;
  memory.slice = needs.slices.bytes();
  memory.pending = subnets ? SharedSums(*needs.groups, needs.slices) : memory.slice;
  memory.states = subnets ? 0 : memory.slice * needs.state_count;
  memory.next_push = Received(
      subnets ? LargestPush(*needs.shape, *needs.groups, needs.slices, needs.workers, needs.part)
              : memory.slice);
  memory.limits.staging_bytes = std::max(kStagingBytesMin, memory.slice);
  memory.limits.copy_bytes = std::max(memory.slice, kBlockBytes);
  // The defaults are taken where they fit; only a limit that they break costs speed.
  if (memory.total() <= bytes_max) return memory;

  // Who trains subnets reads before it pushes, so that folds may wait. Elsewhere readers come at any
  // time, and a shard that could copy nothing would cut them all off.
  memory.limits.folds_wait_for_readers = subnets;
  memory.limits.copy_bytes = subnets ? 0 : memory.limits.copy_bytes;
  const int64_t others = memory.total() - memory.other_pushes();
  // Received bytes take an eighth more than was sent, which the division by nine eighths takes off.
  memory.limits.staging_bytes =
      std::clamp<int64_t>((bytes_max - others) / 9 * 8, 0, memory.limits.staging_bytes);
  return memory;
}

}  // namespace tessera
