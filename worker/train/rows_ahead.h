// Has the rows of the next minibatches read while others train, where they are not held in memory.
#ifndef TESSERA_WORKER_TRAIN_ROWS_AHEAD_H_
#define TESSERA_WORKER_TRAIN_ROWS_AHEAD_H_

#include <algorithm>
#include <cstdint>

#include "worker/data/dataset.h"
#include "worker/data/order.h"

namespace tessera {

// One thread, the train loop's.
class RowsAhead {
 public:
  // `data` outlives it.
  explicit RowsAhead(const Dataset* data) : data_(*data) {}

  // Another epoch, or another order of the same one, begins.
  void Begin() {
    announced_ = 0;
    data_.Forget();
  }
  // Minibatch `step` of the epoch is next: announces it, and those that follow within the epoch.
  void Advance(int64_t step, uint64_t epoch, EpochOrder* order) {
    if (!data_.is_stored()) return;
    announced_ = std::max(announced_, step);
    const int64_t end = std::min(order->steps(), step + kMinibatches);
    for (; announced_ < end; ++announced_) data_.Expect(order->Rows(announced_), epoch);
  }

 private:
  // That of this step, which may be in hand already, and the next ones.
  static constexpr int64_t kMinibatches = 4;

  const Dataset& data_;
  // Minibatches of the epoch before this one were announced, or are over.
  int64_t announced_ = 0;
};

}  // namespace tessera

#endif  // TESSERA_WORKER_TRAIN_ROWS_AHEAD_H_
