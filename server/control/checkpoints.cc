#include "server/control/checkpoints.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/log.h"
#include "server/shard/checkpoint_mark.h"

namespace tessera {

v1::CheckpointMark Checkpoints::mark() const {
  v1::CheckpointMark mark;
  mark.set_number(number_);
  mark.set_folder_step(folder_step_);
  return mark;
}

uint64_t Checkpoints::Ask() {
  asked_ = true;
  ++changes_;
  return number_ + 1;
}

void Checkpoints::SetLast(std::shared_ptr<const SavedState> last) {
  last_ = std::move(last);
  ++changes_;
  done_step_ = last_->manifest.step;
}

void Checkpoints::Begin(uint64_t step, Exchange after, absl::Time now) {
  if (stage_ != Stage::kIdle) {
    tasks_.push_back({DiskTask::Kind::kAbandon, number_, folder_step_, {}});
  }
  stage_ = Stage::kBeginning;
  ++changes_;
  ++number_;
  // Never the same folder twice: whoever was given up may be writing still.
  folder_step_ = std::max(step, folder_step_ + 1);
  after_ = after;
  order_.reset();
  files_.Begin(now);
  tasks_.push_back({DiskTask::Kind::kBegin, number_, folder_step_, {}});
}

bool Checkpoints::BeginLast(const MemberRecord& member, uint64_t step, bool writes_again,
                            absl::Time now) {
  if (last_of_all_.OnFinished(member.member, writes_again)) ++changes_;
  if (last_of_all_.begun() || last_of_all_.over()) return true;
  const bool is_busy = stage_ == Stage::kCommitting || stage_ == Stage::kBeginning ||
                       (stage_ == Stage::kWriting && !files_.IsUntouched());
  if (is_busy) return false;
  const auto is_there = [step](const CheckpointMember& saved) { return saved.step == step; };
  if (last_ != nullptr &&
      std::all_of(last_->manifest.members.begin(), last_->manifest.members.end(), is_there)) {
    last_of_all_.SetOver();
    ++changes_;
    return true;
  }
  last_of_all_.Begin();
  asked_ = false;
  Begin(std::max(done_step_, folder_step_) + 1, Exchange(0), now);
  return true;
}

void Checkpoints::DriveLast(absl::Time now) {
  const bool was_over = last_of_all_.over();
  if (last_of_all_.TakeTry(now)) {
    return Begin(std::max(done_step_, folder_step_) + 1, Exchange(0), now);
  }
  if (last_of_all_.over() != was_over) ++changes_;
}

void Checkpoints::Drive(Exchange highest_exchange, uint64_t highest_step, absl::Time now) {
  const uint64_t every = static_cast<uint64_t>(facts_.checkpoint_every);
  if (asked_) {
    const bool is_free = stage_ == Stage::kIdle ||
                         (stage_ == Stage::kWriting && files_.IsUntouched() && facts_.synchronous &&
                          after_ > Exchange(highest_exchange.value() + 2));
    if (!is_free) return;
    asked_ = false;
    planned_step_ = highest_step;
    Begin(highest_step + 1, facts_.synchronous ? highest_exchange.Next() : Exchange(0), now);
    return;
  }
  if (stage_ != Stage::kIdle || every == 0) return;
  if (!facts_.synchronous) {
    if (highest_step / every <= done_step_ / every) return;
    planned_step_ = highest_step;
    Begin(highest_step, Exchange(0), now);
    return;
  }
  // The exchange at whose end the next multiple is reached, agreed on before it comes.
  const uint64_t due = (std::max(done_step_, steps_.After(highest_exchange)) / every + 1) * every;
  const Exchange after = steps_.Reaching(due);
  if (facts_.steps > 0 && after > steps_.Reaching(static_cast<uint64_t>(facts_.steps))) return;
  Begin(due, after, now);
}

v1::CheckpointOrder Checkpoints::OnAgreed(Exchange first) {
  stage_ = Stage::kWriting;
  ++changes_;
  after_ = first;
  order_.emplace();
  *order_->mutable_mark() = mark();
  // Nobody may come any more to complete what is half collected at the end: where members are in lockstep, too,
  // one that had begun later is sent away with the job's end, and its push may have been folded.
  order_->set_after_exchange(last_of_all_.begun() ? kCopyAtOnce.value() : after_.value());
  return *order_;
}

void Checkpoints::OnDisk(const DiskTask& task, const absl::Status& status, bool may_prune,
                         absl::Time now) {
  if (task.number != number_ || stage_ == Stage::kIdle) return;
  ++changes_;
  if (!status.ok()) {
    Fail(status.message(), now);
    return;
  }
  if (task.kind == DiskTask::Kind::kBegin && stage_ == Stage::kBeginning) {
    stage_ = Stage::kAgreeing;
    return;
  }
  if (task.kind != DiskTask::Kind::kCommit || stage_ != Stage::kCommitting) return;
  stage_ = Stage::kIdle;
  if (last_of_all_.begun()) last_of_all_.SetOver();
  last_ = std::move(open_state_);
  // Where members advance on their own each says what its file holds: one that says too much would have no
  // checkpoint follow any more.
  done_step_ = std::max(done_step_, facts_.synchronous ? last_->manifest.step : planned_step_);
  record_.OnWhole(number_, last_->manifest, files_.copied_at(), now);
  if (may_prune) {
    tasks_.push_back({DiskTask::Kind::kPrune, number_, folder_step_, {}});
    tasks_.back().manifest.step = last_->manifest.step;
  }
}

void Checkpoints::Fail(absl::string_view why, absl::Time now) {
  if (stage_ == Stage::kIdle) return;
  ++changes_;
  // The next one is due a whole interval later: a disk that is full is not asked at every exchange.
  const bool has_exchange = facts_.synchronous && after_ != Exchange(0);
  done_step_ = std::max<uint64_t>(done_step_, has_exchange ? steps_.After(after_) : folder_step_);
  stage_ = Stage::kIdle;
  order_.reset();
  record_.OnFailed(number_, why);
  tasks_.push_back({DiskTask::Kind::kAbandon, number_, folder_step_, {}});
  if (open_state_ != nullptr) tasks_.back().manifest = open_state_->manifest;
  open_state_.reset();
  const std::string next = last_of_all_.OnFailed(now);
  Log(LogLevel::kWarning,
      absl::StrCat("checkpoint: failed number=", number_, " why=\"", why, "\"; ", next));
}

void Checkpoints::GoBack(uint64_t step, absl::Time now) {
  last_of_all_.GoBack();
  ++changes_;
  Fail("the job goes back to an earlier one", now);
  done_step_ = step;
}

void Checkpoints::OnPart(ShardId server, const v1::CheckpointPart& part, absl::Time now) {
  if (part.number() != number_ || stage_ != Stage::kWriting) return;
  if (!part.error().empty()) {
    Fail(absl::StrCat("server ", server.value(), ": ", part.error()), now);
    return;
  }
  files_.AddPart(server, part, now);
  ++changes_;
}

void Checkpoints::OnSaved(const MemberRecord& member, const v1::SavedRequest& request,
                          absl::Time now) {
  if (request.number() != number_ || stage_ != Stage::kWriting) return;
  if (!request.error().empty()) {
    Fail(absl::StrCat("worker ", member.rank.value(), ": ", request.error()), now);
    return;
  }
  files_.AddFile(member, request);
  ++changes_;
}

bool Checkpoints::IsAwaited(const MemberRecord& member) const {
  if (member.state != MemberState::kAdmitted) return false;
  if (files_.HasFileOf(member)) return false;
  if (!last_of_all_.begun() && last_of_all_.HasFinished(member.member)) return false;
  // One that begins after the exchange, or was told that this one is not its to write.
  if (facts_.synchronous && after_ != Exchange(0)) return member.first_exchange <= after_;
  return member.told_checkpoint.has_value() && *member.told_checkpoint < number_;
}

bool Checkpoints::IsComplete(const MemberTable& members) const {
  if (stage_ != Stage::kWriting || !files_.HasAllParts()) return false;
  for (const MemberRecord* member : members.Counted()) {
    if (IsAwaited(*member)) return false;
  }
  return true;
}

std::vector<std::string> Checkpoints::Missing(const MemberTable& members) const {
  std::vector<std::string> names;
  if (stage_ == Stage::kBeginning || stage_ == Stage::kCommitting) {
    names.push_back(absl::StrCat("the disk of checkpoint ", number_));
  }
  if (stage_ != Stage::kWriting) return names;
  const auto add = [this, &names](absl::string_view who, uint64_t rank) {
    names.push_back(absl::StrCat(who, " ", rank, " to write its part of checkpoint ", number_));
  };
  for (int server = 0; server < facts_.servers; ++server) {
    if (!files_.HasPartOf(ShardId(server))) add("server", server);
  }
  for (const MemberRecord* member : members.Counted()) {
    if (IsAwaited(*member)) add("worker", member->rank.value());
  }
  return names;
}

Manifest Checkpoints::MakeManifest(const SavedJob& job, Generation generation) const {
  Manifest manifest = *facts_.model_manifest;
  manifest.step = saved_step();
  // Where members advance on their own the furthest may be gone. Names sort by age nevertheless.
  if (!facts_.synchronous && last_ != nullptr) {
    manifest.step = std::max(manifest.step, last_->manifest.step + 1);
  }
  manifest.generation = generation.value();
  files_.Fill(after_, job.whole_next, &manifest);
  manifest.coordinator = FormatSavedJob(job);
  return manifest;
}

void Checkpoints::Commit(SavedJob job, Generation generation, absl::Time now) {
  // Nobody is left to say at which step it is.
  if (!files_.has_workers()) return Fail("all workers that were in it are gone", now);
  job.whole_next = files_.whole_next();
  auto state = std::make_shared<SavedState>();
  state->manifest = MakeManifest(job, generation);
  // Earlier ones go once it is whole, and then somebody has to be able to read it.
  if (const absl::Status readable = CheckReadable(state->manifest); !readable.ok()) {
    return Fail(absl::StrCat("nobody could go on from it: ", readable.message()), now);
  }
  stage_ = Stage::kCommitting;
  ++changes_;
  order_.reset();
  state->job = std::move(job);
  tasks_.push_back({DiskTask::Kind::kCommit, number_, folder_step_, state->manifest});
  open_state_ = std::move(state);
}

std::vector<DiskTask> Checkpoints::TakeTasks() { return std::exchange(tasks_, {}); }

void Checkpoints::Fill(absl::Time now, v1::CheckpointStatus* status) const {
  record_.Fill(now, status);
  if (stage_ != Stage::kIdle) status->set_open_number(number_);
}

v1::CheckpointsState Checkpoints::Save(SavedStates* saved) const {
  v1::CheckpointsState state;
  state.set_stage(static_cast<uint32_t>(stage_));
  state.set_number(number_);
  state.set_folder_step(folder_step_);
  state.set_after(after_.value());
  last_of_all_.Save(&state);
  state.set_asked(asked_);
  if (order_) *state.mutable_order() = *order_;
  files_.Save(&state);
  state.set_done_step(done_step_);
  state.set_planned_step(planned_step_);
  state.set_open_state(saved->Add(open_state_));
  state.set_last(saved->Add(last_));
  record_.Save(&state);
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
  stage_ = static_cast<Stage>(state.stage());
  TESSERA_RETURN_IF_ERROR(last_of_all_.Load(state, /*is_idle=*/stage_ == Stage::kIdle));
  number_ = state.number();
  folder_step_ = state.folder_step();
  after_ = Exchange(state.after());
  asked_ = state.asked();
  order_.reset();
  if (state.has_order()) order_ = state.order();
  TESSERA_RETURN_IF_ERROR(files_.Load(state));
  done_step_ = state.done_step();
  planned_step_ = state.planned_step();
  TESSERA_RETURN_IF_ERROR(saved.Find(state.open_state(), &open_state_));
  TESSERA_RETURN_IF_ERROR(saved.Find(state.last(), &last_));
  if (stage_ == Stage::kCommitting && open_state_ == nullptr) {
    return absl::InvalidArgumentError("checkpoint is being committed, and there is none");
  }
  record_.Load(state);
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
