// What a leading shard tells of itself, as events for a standby: an image of it to begin with, and from then on what
// it does by itself. What it is asked to do the standby is told by whoever asks.
#ifndef TESSERA_SERVER_SHARD_LOG_SHARD_RECORDER_H_
#define TESSERA_SERVER_SHARD_LOG_SHARD_RECORDER_H_

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "server/shard/shard.h"
#include "server/shard/shard_event.h"
#include "server/shard/update_log.h"

namespace tessera {

// The shard's thread.
class ShardRecorder final : public UpdateLog {
 public:
  // `shard` outlives its recordings.
  explicit ShardRecorder(Shard* shard) : shard_(*shard) {}

  // Has what the shard does kept for TakeRecords from now on, or no longer. To be called when an update begins.
  void Record(bool records);
  std::vector<ShardEvent> TakeRecords() { return std::exchange(recorded_, {}); }
  // No member's push of `exchange` can change the parameters any more.
  bool IsOver(Exchange exchange) const;

  // All of the shard. nullopt: an update is half collected, or what is staged is of a core whose keys are forgotten.
  // Not of replicas.
  static std::optional<ImageEvent> ImageOf(Shard* shard);
  // What is staged, as the events that brought it; empty where pushes are combined.
  static std::vector<ShardEvent> StagedPushesOf(const Shard& shard);
  // See ShardState: a standby is told of folds and of the sum.
  static bool CombinesPushes(const Shard& shard);
  // See ShardState.
  static bool IsAsMade(const Shard& shard);

  void OnFold(const FoldEvent& fold) override;
  void OnCommit(absl::Time now) override;
  void OnAdvance(absl::Time now) override;

 private:
  Shard& shard_;
  std::vector<ShardEvent> recorded_;
  std::vector<std::shared_ptr<std::vector<float>>> sums_;  // of recorded commits, or free
};

}  // namespace tessera

#endif  // TESSERA_SERVER_SHARD_LOG_SHARD_RECORDER_H_
