// Checkpoints: to and from the coordinator's state.
#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "server/control/checkpoints.h"

namespace tessera {

v1::CheckpointsState Checkpoints::Save(SavedStates* saved) const {
  v1::CheckpointsState state;
  state.set_stage(static_cast<uint32_t>(stage_));
  state.set_number(number_);
  state.set_folder_step(folder_step_);
  state.set_after(after_.value());
  state.set_is_last(is_last_);
  for (MemberId member : finished_) state.add_finished(member.value());
  state.set_last_made(last_made_);
  state.set_asked(asked_);
  if (order_) *state.mutable_order() = *order_;
  for (const auto& [server, part] : parts_) {
    state.add_part_servers(static_cast<uint32_t>(server.value()));
    *state.add_parts() = part;
  }
  for (const auto& [rank, file] : saved_) {
    state.add_saved_ranks(static_cast<uint32_t>(rank.value()));
    v1::SavedRequest& request = *state.add_saved();
    request = file.request;
    request.set_member(file.member.value());
  }
  state.set_copied_at(absl::ToUnixNanos(copied_at_));
  state.set_done_step(done_step_);
  state.set_open_state(saved->Add(open_state_));
  state.set_last(saved->Add(last_));
  state.set_whole_number(whole_number_);
  state.set_whole_step(whole_step_);
  state.set_whole_bytes(whole_bytes_);
  state.set_whole_taken(absl::ToInt64Nanoseconds(whole_taken_));
  state.set_whole_at(absl::ToUnixNanos(whole_at_));
  state.set_count(count_);
  state.set_failed_number(failed_number_);
  state.set_failed_count(failed_count_);
  state.set_failure(failure_);
  state.set_writes_once(writes_once_);
  state.set_last_failures(static_cast<uint32_t>(last_failures_));
  state.set_try_last_at(try_last_at_ ? absl::ToUnixNanos(*try_last_at_) : 0);
  return state;
}

absl::Status Checkpoints::Load(const v1::CheckpointsState& state, const SavedStates& saved) {
  if (state.stage() > static_cast<uint32_t>(Stage::kCommitting) ||
      state.part_servers_size() != state.parts_size() ||
      state.saved_ranks_size() != state.saved_size()) {
    return absl::InvalidArgumentError(absl::StrCat("checkpoint is in stage ", state.stage(),
                                                   " with ", state.parts_size(), " parts and ",
                                                   state.saved_size(), " files"));
  }
  const bool is_over = state.is_last() && state.stage() == static_cast<uint32_t>(Stage::kIdle);
  if (state.last_failures() > kLastTries || (state.try_last_at() != 0 && !is_over)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "last checkpoint has failed ", state.last_failures(), " times, in stage ", state.stage()));
  }
  stage_ = static_cast<Stage>(state.stage());
  number_ = state.number();
  folder_step_ = state.folder_step();
  after_ = Exchange(state.after());
  is_last_ = state.is_last();
  finished_.clear();
  for (const uint64_t member : state.finished()) finished_.insert(MemberId(member));
  last_made_ = state.last_made();
  asked_ = state.asked();
  order_.reset();
  if (state.has_order()) order_ = state.order();
  parts_.clear();
  for (int i = 0; i < state.parts_size(); ++i) {
    if (state.part_servers(i) >= static_cast<uint32_t>(facts_.servers)) {
      return absl::InvalidArgumentError(
          absl::StrCat("checkpoint has a part of server ", state.part_servers(i)));
    }
    parts_[ShardId(state.part_servers(i))] = state.parts(i);
  }
  saved_.clear();
  for (int i = 0; i < state.saved_size(); ++i) {
    saved_[Rank(state.saved_ranks(i))] = {MemberId(state.saved(i).member()), state.saved(i)};
  }
  copied_at_ = absl::FromUnixNanos(state.copied_at());
  done_step_ = state.done_step();
  TESSERA_RETURN_IF_ERROR(saved.Find(state.open_state(), &open_state_));
  TESSERA_RETURN_IF_ERROR(saved.Find(state.last(), &last_));
  if (stage_ == Stage::kCommitting && open_state_ == nullptr) {
    return absl::InvalidArgumentError("checkpoint is being committed, and there is none");
  }
  whole_number_ = state.whole_number();
  whole_step_ = state.whole_step();
  whole_bytes_ = state.whole_bytes();
  whole_taken_ = absl::Nanoseconds(state.whole_taken());
  whole_at_ = absl::FromUnixNanos(state.whole_at());
  count_ = state.count();
  failed_number_ = state.failed_number();
  failed_count_ = state.failed_count();
  failure_ = state.failure();
  writes_once_ = state.writes_once();
  last_failures_ = static_cast<int>(state.last_failures());
  try_last_at_.reset();
  if (state.try_last_at() != 0) try_last_at_ = absl::FromUnixNanos(state.try_last_at());
  tasks_.clear();
  return absl::OkStatus();
}

void Checkpoints::Reconnect(absl::Time now) {
  if (stage_ == Stage::kCommitting) {
    tasks_.push_back({DiskTask::Kind::kCommit, number_, folder_step_, open_state_->manifest});
    return;
  }
  Fail("another process of the coordinator has taken over", now);
}

}  // namespace tessera
