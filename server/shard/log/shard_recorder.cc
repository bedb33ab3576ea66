#include "server/shard/log/shard_recorder.h"

#include "common/base/check.h"

namespace tessera {

bool ShardRecorder::CombinesPushes(const Shard& shard) { return shard.state_.CombinesPushes(); }

bool ShardRecorder::IsAsMade(const Shard& shard) { return shard.state_.IsAsMade(); }

void ShardRecorder::Record(bool records) { shard_.log_ = records ? this : nullptr; }

bool ShardRecorder::IsOver(Exchange exchange) const {
  return shard_.state_.policy->Collecting() > exchange;
}

void ShardRecorder::OnFold(const FoldEvent& fold) {
  if (CombinesPushes(shard_)) recorded_.push_back(fold);
}

// The sum is sent from where it is; the next one is formed elsewhere.
void ShardRecorder::OnCommit(absl::Time now) {
  if (!CombinesPushes(shard_)) return;
  std::shared_ptr<std::vector<float>> sent;
  // The sum's memory goes round: one that no connection holds any more takes the next sum.
  for (std::shared_ptr<std::vector<float>>& kept : sums_) {
    if (kept.use_count() == 1) sent = kept;
  }
  if (sent == nullptr) sent = sums_.emplace_back(std::make_shared<std::vector<float>>());
  std::swap(*sent, *shard_.state_.form->last_sum());
  CommitEvent commit;
  commit.time = now;
  commit.sum.Append({reinterpret_cast<const char*>(sent->data()), shard_.slices().bytes()}, sent);
  recorded_.push_back(std::move(commit));
}

// Where pushes are not combined the standby has them, and needs no more than the time at which something was due.
void ShardRecorder::OnAdvance(absl::Time now) {
  if (!CombinesPushes(shard_)) recorded_.push_back(AdvanceEvent{now});
}

std::vector<ShardEvent> ShardRecorder::StagedPushesOf(const Shard& shard) {
  std::vector<ShardEvent> events;
  if (CombinesPushes(shard)) return events;
  for (const StagedPush& push : shard.state_.stage.pushes()) {
    events.push_back(PushEvent{push.Share()});
  }
  return events;
}

std::optional<ImageEvent> ShardRecorder::ImageOf(Shard* shard) {
  ShardState& state = shard->state_;
  // Replicas are each other's standbys.
  TESSERA_CHECK(!state.is_replica);
  // A sum that is half collected cannot be sent; the image waits for the commit.
  if (state.open_folds > 0) return std::nullopt;
  // Who follows would ask for the keys; it is folded in a moment.
  for (const StagedPush& push : state.stage.pushes()) {
    if (!state.form->IsSendable(push)) return std::nullopt;
  }
  ImageEvent image;
  state.members.TakeImage(&image);
  image.policy = state.policy->State();
  image.counters = state.counters;
  // Staged pushes follow the image as events, which count them.
  image.counters.pushes -= state.stage.pushes().size();
  image.copied = state.copies.made();
  const auto snapshot = state.store.TakeSnapshot();
  for (const std::shared_ptr<const Block>& block : snapshot->blocks()) {
    image.values.Append({reinterpret_cast<const char*>(block->data()),
                         block->size() * static_cast<int64_t>(sizeof(float))},
                        snapshot);
  }
  state.form->TakeImage(*snapshot, &image);
  return image;
}

}  // namespace tessera
