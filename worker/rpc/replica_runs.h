// Where one server's entries lie in the replica: runs of memory, in the server's dense order.
#ifndef TESSERA_WORKER_RPC_REPLICA_RUNS_H_
#define TESSERA_WORKER_RPC_REPLICA_RUNS_H_

#include <algorithm>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "absl/types/span.h"
#include "common/base/check.h"
#include "common/layout/shard_map.h"

namespace tessera {

// The runs, and how far they were read (Float = const float) or written (float). Bytes are
// little-endian f32, as they lie in memory.
template <typename Float>
class ReplicaRuns {
 public:
  using Byte = std::conditional_t<std::is_const_v<Float>, const char, char>;
  struct Run {
    Byte* data = nullptr;
    int64_t size = 0;
  };

  // Begins at the front of `slices` of `arrays`. Allocates nothing once it has held as many runs.
  void Assign(const ShardSlices& slices, const std::vector<absl::Span<Float>>& arrays) {
    static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "payloads are little-endian");
    runs_.clear();
    for (const Slice& slice : slices.slices) {
      const absl::Span<Float> array = arrays[slice.parameter];
      TESSERA_CHECK(slice.row_end * slice.columns <= static_cast<int64_t>(array.size()));
      runs_.push_back({reinterpret_cast<Byte*>(array.data() + slice.row_begin * slice.columns),
                       slice.size() * static_cast<int64_t>(sizeof(float))});
    }
    left_ = slices.bytes();
    done_ = 0;
    Rewind();
  }

  void Rewind() {
    left_ += done_;
    done_ = 0;
    run_ = 0;
    offset_ = 0;
  }

  int64_t left() const { return left_; }
  int64_t done() const { return done_; }

  // Calls run(data, size) for the next `count` bytes. There must be that many.
  template <typename Visit>
  void Take(int64_t count, Visit visit) {
    TESSERA_CHECK(count <= left_);
    left_ -= count;
    done_ += count;
    while (count > 0) {
      const Run& run = runs_[run_];
      const int64_t size = std::min(count, run.size - offset_);
      visit(run.data + offset_, size);
      offset_ += size;
      count -= size;
      if (offset_ == run.size) {
        ++run_;
        offset_ = 0;
      }
    }
  }

  // The next entries that lie behind each other: where they are, and how many. All that was taken so
  // far must be whole entries.
  struct Segment {
    Float* entries = nullptr;
    int64_t count = 0;
  };
  Segment Ahead() const {
    if (run_ == runs_.size()) return {};
    const Run& run = runs_[run_];
    return {reinterpret_cast<Float*>(run.data + offset_),
            (run.size - offset_) / static_cast<int64_t>(sizeof(float))};
  }
  // Passes over `count` entries of the run ahead.
  void Skip(int64_t count) {
    Take(count * static_cast<int64_t>(sizeof(float)), [](Byte*, int64_t) {});
  }

 private:
  std::vector<Run> runs_;
  size_t run_ = 0;
  int64_t offset_ = 0;
  int64_t left_ = 0;
  int64_t done_ = 0;
};

using UpdateRuns = ReplicaRuns<const float>;
using ValueRuns = ReplicaRuns<float>;

}  // namespace tessera

#endif  // TESSERA_WORKER_RPC_REPLICA_RUNS_H_
