#include "server/shard/forms/run_entries.h"

#include <algorithm>

#include "server/shard/block_walk.h"

namespace tessera {
namespace {

class RunSource final : public EntrySource {
 public:
  RunSource(std::shared_ptr<const Snapshot> snapshot, int64_t begin)
      : walk_(std::move(snapshot), begin) {}

  const float* Next(int64_t count, float* scratch) override {
    // A run may end with its block, which the caller may still read, as the snapshot holds it.
    if (count <= walk_.run()) {
      const float* const data = walk_.data();
      walk_.Skip(count);
      return data;
    }
    for (int64_t done = 0; done < count;) {
      const int64_t run = std::min(count - done, walk_.run());
      std::copy_n(walk_.data(), run, scratch + done);
      walk_.Skip(run);
      done += run;
    }
    return scratch;
  }

 private:
  BlockWalk walk_;
};

}  // namespace

std::string RunEntries::Describe(const ModelShape& shape, const ShardSlices& slices,
                                 int64_t entry) const {
  return DescribeEntry(shape, slices, run_.begin + entry);
}

std::unique_ptr<EntrySource> RunEntries::Source(std::shared_ptr<const Snapshot> snapshot) const {
  return std::make_unique<RunSource>(std::move(snapshot), run_.begin);
}

}  // namespace tessera
