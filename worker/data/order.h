// Which training rows a worker reads, and in which order.
//
// The order of an epoch is the rows sorted by (key, row), where key is the first 64 bits of
// Philox(seed, kDataOrder, epoch, row), or of Philox(seed, kDataOrder, epoch | (rank + 1) << 32,
// row) for an order of one's own. With K parts and minibatches of B rows:
//
//   global  step t takes the next K*B rows of the order of all, part k the k-th B of them
//           (by_speed: the next B_k of them, behind those of the parts before; all B_k together are K*B)
//   shard   part k orders the rows i with i mod K = k, and step t takes the next B
//   full    every worker orders all rows, its rank in the key
//   local   every worker orders the rows of its own files; the order begins anew where it runs out
//
// An epoch is floor(N / (K*B)) steps, N being all rows (local: of all workers together), as
// common/method/train_rows.h says. So the last incomplete step is dropped, and workers make equally
// many.
#ifndef TESSERA_WORKER_DATA_ORDER_H_
#define TESSERA_WORKER_DATA_ORDER_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/base/ids.h"
#include "worker/data/order_cache.h"

namespace tessera {

enum class Partition { kGlobal, kShard, kFull, kLocal };

// From data.partition, of which by_speed is global with parts of other sizes; kInvalidArgument where it is none.
absl::StatusOr<Partition> ParsePartition(absl::string_view name);

// A worker's place in one epoch.
struct EpochPlace {
  // Below 2^32.
  uint64_t epoch = 0;
  Rank rank;
  // The part that this worker reads, out of `parts`; part = parts is a worker that joined in mid-epoch. It reads all
  // rows in an order of its own, its rank in the key, whatever the partition (local: its own files as ever).
  int64_t part = 0;
  int64_t parts = 1;
  // Rows of all workers together, which only local needs; 0: those of this worker.
  int64_t rows_total = 0;
  // Where parts are not equally large, which only global can have: this one's rows of each step, and those of the
  // parts before it, at most parts * batch in all. 0: each part has `batch`.
  int64_t batch_rows = 0;
  int64_t rows_before = 0;
};

// One worker's order, epoch after epoch. One thread. Its memory is about 4 bytes for each row that
// it reads, and 20 for each row while it sorts.
class EpochOrder {
 public:
  struct Options {
    Partition partition = Partition::kGlobal;
    uint64_t seed = 0;
    // Training rows of this worker's files, in [1, kRowsMax].
    int64_t rows = 0;
    // Rows of one minibatch, at least 1.
    int64_t batch = 0;
    // Where other workers of this process find the same orders; nullptr: there are none.
    OrderCache* cache = nullptr;
  };

  explicit EpochOrder(const Options& options);

  // Bytes at most, of so many rows of this worker's files: the order before, while the next is sorted.
  static int64_t MemoryNeeded(int64_t rows);

  // Sorts the rows of this epoch: about 0.1 microseconds for each. On error the order is as it was.
  //   kInvalidArgument  there are fewer rows than one step takes
  absl::Status Begin(const EpochPlace& place);

  // Minibatches of the epoch; 0 before Begin.
  int64_t steps() const { return steps_; }

  // The batch of step `step` of the epoch, in [0, steps()). The view lives until the next call of a
  // method.
  absl::Span<const uint32_t> Rows(int64_t step);

 private:
  void TakePart(const EpochPlace& place);

  const Options options_;
  int64_t steps_ = 0;
  // Rows of one minibatch of the epoch.
  int64_t batch_ = 0;
  // This worker's rows in the order it reads them.
  RowOrder rows_;
  // A batch that goes over the end of the order, from its begin on.
  std::vector<uint32_t> wrapped_;
};

// The rows that calibrate batch norm: the first 2,048, or all if there are fewer, by the first 64
// bits of Philox(seed, kCalibration, 0, row), then row. Under shard only the part's own rows count;
// elsewhere part 0 of 1.
std::vector<uint32_t> CalibrationRows(uint64_t seed, int64_t rows, int64_t part = 0,
                                      int64_t parts = 1);

// The test rows that part k of K scores: i with i mod K = k, ascending.
std::vector<uint32_t> EvaluationRows(int64_t rows, int64_t part, int64_t parts);

}  // namespace tessera

#endif  // TESSERA_WORKER_DATA_ORDER_H_
