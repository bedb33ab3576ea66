// Which checkpoint's copy a shard is to make, and which it made last.
#ifndef TESSERA_SERVER_SHARD_COPY_ORDERS_H_
#define TESSERA_SERVER_SHARD_COPY_ORDERS_H_

#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "server/shard/checkpoint_mark.h"

namespace tessera {

// The shard's thread.
class CopyOrders {
 public:
  // Replaces an order whose copy is not due yet. One that was made, or an older one, is not made again.
  //   kAborted  it was made by the leader before this one, and is lost with it
  absl::Status Order(const CopyOrder& order) {
    if (order.mark.number == made_.mark.number && !is_made_here_) {
      return absl::AbortedError("the leader that had copied this shard was lost with its copy");
    }
    if (order.mark.number > made_.mark.number) open_ = order;
    return absl::OkStatus();
  }
  // The copy that is to be made.
  const std::optional<CopyOrder>& open() const { return open_; }
  // The open copy is made now. Returns its order.
  const CopyOrder& Take() {
    made_ = *std::exchange(open_, std::nullopt);
    is_made_here_ = true;
    return made_;
  }
  // Another shard, which this one follows, has made it.
  void SetMadeElsewhere(const CopyOrder& order) {
    made_ = order;
    is_made_here_ = order.mark.number == 0;
  }
  const CopyOrder& made() const { return made_; }
  // The checkpoint that has what exchange `after` brought, if it is the last one.
  CheckpointMark MarkOf(Exchange after) const {
    const bool has = made_.after == Exchange(0) || made_.after == after;
    return has ? made_.mark : CheckpointMark();
  }

 private:
  std::optional<CopyOrder> open_;
  CopyOrder made_;
  bool is_made_here_ = true;  // and not by the leader before this one
};

}  // namespace tessera

#endif  // TESSERA_SERVER_SHARD_COPY_ORDERS_H_
