#include "server/control/checkpoints.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/log.h"
#include "common/metrics/staleness.h"
#include "server/shard/checkpoint_mark.h"

namespace tessera {
namespace {

// Its name is the one of who wrote it, whatever the message says: the commit renames it.
CheckpointFile FileOf(std::string name, const v1::SavedFile& message) {
  return {std::move(name), static_cast<int64_t>(message.bytes()), message.sum()};
}

}  // namespace

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
  parts_.clear();
  saved_.clear();
  copied_at_ = now;
  tasks_.push_back({DiskTask::Kind::kBegin, number_, folder_step_, {}});
}

bool Checkpoints::BeginLast(const MemberRecord& member, uint64_t step, bool writes_again,
                            absl::Time now) {
  if (finished_.insert(member.member).second) ++changes_;
  if (!writes_again && !std::exchange(writes_once_, true)) ++changes_;
  if (is_last_ || last_made_) return true;
  const bool is_busy = stage_ == Stage::kCommitting || stage_ == Stage::kBeginning ||
                       (stage_ == Stage::kWriting && !IsUntouched());
  if (is_busy) return false;
  const auto is_there = [step](const CheckpointMember& saved) { return saved.step == step; };
  if (last_ != nullptr &&
      std::all_of(last_->manifest.members.begin(), last_->manifest.members.end(), is_there)) {
    last_made_ = true;
    ++changes_;
    return true;
  }
  is_last_ = true;
  asked_ = false;
  Begin(std::max(done_step_, folder_step_) + 1, Exchange(0), now);
  return true;
}

void Checkpoints::DriveLast(absl::Time now) {
  if (!try_last_at_ || now < *try_last_at_) return;
  try_last_at_.reset();
  if (!writes_once_) return Begin(std::max(done_step_, folder_step_) + 1, Exchange(0), now);
  last_made_ = true;
  ++changes_;
}

void Checkpoints::Drive(Exchange highest_exchange, uint64_t highest_step, absl::Time now) {
  const uint64_t every = static_cast<uint64_t>(facts_.checkpoint_every);
  if (asked_) {
    const bool is_free = stage_ == Stage::kIdle ||
                         (stage_ == Stage::kWriting && IsUntouched() && facts_.synchronous &&
                          after_ > Exchange(highest_exchange.value() + 2));
    if (!is_free) return;
    asked_ = false;
    Begin(highest_step + 1, facts_.synchronous ? highest_exchange.Next() : Exchange(0), now);
    return;
  }
  if (stage_ != Stage::kIdle || every == 0) return;
  if (!facts_.synchronous) {
    if (highest_step / every > done_step_ / every) Begin(highest_step, Exchange(0), now);
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
  order_->set_after_exchange(is_last_ ? kCopyAtOnce.value() : after_.value());
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
  last_made_ = last_made_ || is_last_;
  last_ = std::move(open_state_);
  done_step_ = std::max(done_step_, last_->manifest.step);
  whole_number_ = number_;
  whole_step_ = last_->manifest.step;
  whole_bytes_ = 0;
  for (const CheckpointFile& file : last_->manifest.files) whole_bytes_ += file.bytes;
  whole_taken_ = now - copied_at_;
  whole_at_ = now;
  ++count_;
  failed_number_ = 0;
  failure_.clear();
  if (may_prune) {
    tasks_.push_back({DiskTask::Kind::kPrune, number_, folder_step_, {}});
    tasks_.back().manifest.step = whole_step_;
  }
  Log(LogLevel::kInfo,
      absl::StrCat("checkpoint: whole number=", number_, " step=", whole_step_,
                   " bytes=", whole_bytes_, " ms=", absl::ToInt64Milliseconds(whole_taken_)));
}

void Checkpoints::Fail(absl::string_view why, absl::Time now) {
  if (stage_ == Stage::kIdle) return;
  ++changes_;
  // The next one is due a whole interval later: a disk that is full is not asked at every exchange.
  const bool has_exchange = facts_.synchronous && after_ != Exchange(0);
  done_step_ = std::max<uint64_t>(done_step_, has_exchange ? steps_.After(after_) : folder_step_);
  stage_ = Stage::kIdle;
  order_.reset();
  failed_number_ = number_;
  ++failed_count_;
  failure_ = std::string(why);
  tasks_.push_back({DiskTask::Kind::kAbandon, number_, folder_step_, {}});
  if (open_state_ != nullptr) tasks_.back().manifest = open_state_->manifest;
  open_state_.reset();
  std::string next = is_last_ ? "the job ends without it" : "training goes on";
  if (is_last_ && !writes_once_ && ++last_failures_ < kLastTries) {
    try_last_at_ = now + kLastPause;
    next = absl::StrCat("it is the last one, tried again in ", absl::FormatDuration(kLastPause),
                        ", ", last_failures_ + 1, " of ", kLastTries);
  } else {
    last_made_ = last_made_ || is_last_;
  }
  Log(LogLevel::kWarning,
      absl::StrCat("checkpoint: failed number=", number_, " why=\"", why, "\"; ", next));
}

void Checkpoints::GoBack(uint64_t step, absl::Time now) {
  finished_.clear();
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
  const absl::Time copied = now - absl::Seconds(part.seconds());
  copied_at_ = parts_.empty() ? std::max(copied_at_, copied) : std::min(copied_at_, copied);
  v1::CheckpointPart& kept = parts_[server] = part;
  kept.DiscardUnknownFields();
  kept.clear_members();
  kept.clear_exchanges();
  kept.mutable_file()->clear_name();
  if (kept.staleness_histogram_size() > static_cast<int>(kStalenessEntries)) {
    kept.mutable_staleness_histogram()->Truncate(kStalenessEntries);
  }
  ++changes_;
}

void Checkpoints::OnSaved(const MemberRecord& member, const v1::SavedRequest& request,
                          absl::Time now) {
  if (request.number() != number_ || stage_ != Stage::kWriting) return;
  if (!request.error().empty()) {
    Fail(absl::StrCat("worker ", member.rank.value(), ": ", request.error()), now);
    return;
  }
  v1::SavedRequest& kept = saved_[member.rank].request = request;
  saved_[member.rank].member = member.member;
  kept.DiscardUnknownFields();
  kept.mutable_file()->clear_name();
  ++changes_;
}

bool Checkpoints::IsAwaited(const MemberRecord& member) const {
  if (member.state != MemberState::kAdmitted) return false;
  const auto saved = saved_.find(member.rank);
  if (saved != saved_.end() && saved->second.member == member.member) return false;
  if (!is_last_ && finished_.count(member.member) > 0) return false;
  // One that begins after the exchange, or was told that this one is not its to write.
  if (facts_.synchronous && after_ != Exchange(0)) return member.first_exchange <= after_;
  return member.told_checkpoint.has_value() && *member.told_checkpoint < number_;
}

bool Checkpoints::IsComplete(const MemberTable& members) const {
  if (stage_ != Stage::kWriting || static_cast<int>(parts_.size()) != facts_.servers) return false;
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
    if (parts_.count(ShardId(server)) == 0) add("server", server);
  }
  for (const MemberRecord* member : members.Counted()) {
    if (IsAwaited(*member)) add("worker", member->rank.value());
  }
  return names;
}

uint64_t Checkpoints::saved_step() const {
  uint64_t step = 0;
  for (const auto& [rank, saved] : saved_) {
    step = std::max<uint64_t>(step, saved.request.progress().step());
  }
  return saved_.empty() ? folder_step_ : step;
}

uint64_t Checkpoints::saved_step_least() const {
  uint64_t step = saved_step();
  for (const auto& [rank, saved] : saved_) {
    step = std::min<uint64_t>(step, saved.request.progress().step());
  }
  return step;
}

bool Checkpoints::evaluation_due() const {
  return std::any_of(saved_.begin(), saved_.end(),
                     [](const auto& entry) { return entry.second.request.evaluation_due(); });
}

std::optional<uint64_t> Checkpoints::ExamplesOf(const MemberRecord& member) const {
  const auto saved = saved_.find(member.rank);
  if (saved == saved_.end() || saved->second.member != member.member) return std::nullopt;
  return saved->second.request.progress().examples();
}

Manifest Checkpoints::MakeManifest(const SavedJob& job, Generation generation) const {
  Manifest manifest = *facts_.model_manifest;
  manifest.step = saved_step();
  // Where members advance on their own the furthest may be gone. Names sort by age nevertheless.
  if (!facts_.synchronous && last_ != nullptr) {
    manifest.step = std::max(manifest.step, last_->manifest.step + 1);
  }
  manifest.generation = generation.value();
  for (const auto& [rank, saved] : saved_) {
    const v1::Progress& progress = saved.request.progress();
    manifest.members.push_back(
        {saved.member.value(), rank.value(), progress.exchange(), progress.step()});
    manifest.files.push_back(FileOf(WorkerFileName(rank.value()), saved.request.file()));
    if (facts_.synchronous) manifest.exchange = std::max(manifest.exchange, progress.exchange());
  }
  if (facts_.synchronous && manifest.exchange == 0) manifest.exchange = after_.value();
  for (const auto& [server, part] : parts_) {
    CheckpointShard& shard = manifest.shards[server.value()];
    shard.version = part.version();
    shard.examples = part.examples();
    shard.pushes = part.pushes();
    shard.staleness_sum = part.staleness_sum();
    shard.staleness_max = part.staleness_max();
    shard.staleness.assign(part.staleness_histogram().begin(), part.staleness_histogram().end());
    manifest.files.push_back(
        FileOf(ShardFileName(static_cast<int64_t>(server.value()), facts_.servers), part.file()));
  }
  if (!job.whole_next && facts_.subnets && !saved_.empty()) {
    // All have had the same round, of which some may be gone.
    const uint64_t told = saved_.begin()->second.request.sites();
    const auto sites = static_cast<double>(told > 0 ? told : saved_.size());
    for (const int weight : facts_.weights_of_mean_share) {
      manifest.parameters[weight].export_factor = 1.0 / sites;
    }
  }
  manifest.coordinator = FormatSavedJob(job);
  return manifest;
}

void Checkpoints::Commit(SavedJob job, Generation generation, absl::Time now) {
  // Nobody is left to say at which step it is.
  if (saved_.empty()) return Fail("all workers that were in it are gone", now);
  job.whole_next = false;
  for (const auto& [server, part] : parts_) job.whole_next = job.whole_next || part.whole_next();
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
  status->set_number(whole_number_);
  status->set_step(whole_step_);
  status->set_bytes(whole_bytes_);
  status->set_count(count_);
  if (count_ > 0) {
    status->set_write_seconds(absl::ToDoubleSeconds(whole_taken_));
    status->set_age_seconds(absl::ToDoubleSeconds(now - whole_at_));
  }
  status->set_failed_number(failed_number_);
  status->set_failed_count(failed_count_);
  status->set_failure(failure_);
  if (stage_ != Stage::kIdle) status->set_open_number(number_);
}

}  // namespace tessera
