// Does again, on a shard that nobody else talks to, what another shard has done: that is all that a standby does.
#ifndef TESSERA_SERVER_SHARD_LOG_SHARD_FOLLOWER_H_
#define TESSERA_SERVER_SHARD_LOG_SHARD_FOLLOWER_H_

#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "server/shard/shard.h"
#include "server/shard/shard_event.h"

namespace tessera {

// One thread at a time.
class ShardFollower {
 public:
  // `shard` is as it was made, and outlives it.
  explicit ShardFollower(Shard* shard) : shard_(*shard), state_(shard->state_) {}

  // The events of the other shard, in their order. Once it has failed the shard is of no use.
  //   kInvalidArgument    it cannot have happened here
  absl::Status Apply(ShardEvent event);
  // Values of one event at most: an image's, or a push's with a core's keys.
  int64_t event_bytes_max() const;

 private:
  absl::Status Follow(const FoldEvent& fold);
  absl::Status Follow(const CommitEvent& commit);
  absl::Status Follow(const ImageEvent& image);
  absl::Status Follow(PushEvent push);
  absl::Status Follow(const AdvanceEvent& advance);
  absl::Status Follow(const PlanEvent& plan);
  absl::Status Follow(const ProposeEvent& proposal);
  absl::Status Follow(const WithdrawEvent& withdraw);
  absl::Status Follow(const RestEvent& rest);
  absl::Status Follow(const CoreQuestionEvent& core);
  absl::Status Follow(const CopiedEvent& copied);
  void FinishSelection();

  Shard& shard_;
  ShardState& state_;
  std::optional<float> scale_;  // of the commit that is to come
};

}  // namespace tessera

#endif  // TESSERA_SERVER_SHARD_LOG_SHARD_FOLLOWER_H_
