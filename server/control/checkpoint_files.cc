#include "server/control/checkpoint_files.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/metrics/staleness.h"

namespace tessera {
namespace {

// A file's name is that of whoever wrote it, whatever the message says: the commit renames it.
CheckpointFile NamedFile(std::string name, const v1::SavedFile& message) {
  return {std::move(name), static_cast<int64_t>(message.bytes()), message.sum()};
}

}  // namespace

void CheckpointFiles::Begin(absl::Time now) {
  parts_.clear();
  saved_.clear();
  copied_at_ = now;
}

void CheckpointFiles::AddPart(ShardId server, const v1::CheckpointPart& part, absl::Time now) {
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
}

void CheckpointFiles::AddFile(const MemberRecord& member, const v1::SavedRequest& request) {
  Saved& saved = saved_[member.rank];
  saved = {member.member, request};
  saved.request.DiscardUnknownFields();
  saved.request.mutable_file()->clear_name();
}

const v1::SavedRequest* CheckpointFiles::FileOf(const MemberRecord& member) const {
  const auto saved = saved_.find(member.rank);
  if (saved == saved_.end() || saved->second.member != member.member) return nullptr;
  return &saved->second.request;
}

uint64_t CheckpointFiles::step() const {
  uint64_t step = 0;
  for (const auto& [rank, saved] : saved_) {
    step = std::max<uint64_t>(step, saved.request.progress().step());
  }
  return step;
}

uint64_t CheckpointFiles::step_least() const {
  uint64_t step = std::numeric_limits<uint64_t>::max();
  for (const auto& [rank, saved] : saved_) {
    step = std::min<uint64_t>(step, saved.request.progress().step());
  }
  return step;
}

bool CheckpointFiles::evaluation_due() const {
  return std::any_of(saved_.begin(), saved_.end(),
                     [](const auto& entry) { return entry.second.request.evaluation_due(); });
}

bool CheckpointFiles::whole_next() const {
  return std::any_of(parts_.begin(), parts_.end(),
                     [](const auto& entry) { return entry.second.whole_next(); });
}

std::optional<uint64_t> CheckpointFiles::ExamplesOf(const MemberRecord& member) const {
  const v1::SavedRequest* const file = FileOf(member);
  if (file == nullptr) return std::nullopt;
  return file->progress().examples();
}

void CheckpointFiles::Fill(Exchange after, bool whole_next, Manifest* manifest) const {
  for (const auto& [rank, saved] : saved_) {
    const v1::Progress& progress = saved.request.progress();
    manifest->members.push_back(
        {saved.member.value(), rank.value(), progress.exchange(), progress.step()});
    manifest->files.push_back(NamedFile(WorkerFileName(rank.value()), saved.request.file()));
    if (facts_.synchronous) manifest->exchange = std::max(manifest->exchange, progress.exchange());
  }
  if (facts_.synchronous && manifest->exchange == 0) manifest->exchange = after.value();
  for (const auto& [server, part] : parts_) {
    CheckpointShard& shard = manifest->shards[server.value()];
    shard.version = part.version();
    shard.examples = part.examples();
    shard.pushes = part.pushes();
    shard.staleness_sum = part.staleness_sum();
    shard.staleness_max = part.staleness_max();
    shard.staleness.assign(part.staleness_histogram().begin(), part.staleness_histogram().end());
    manifest->files.push_back(NamedFile(
        ShardFileName(static_cast<int64_t>(server.value()), facts_.servers), part.file()));
  }
  if (whole_next || !facts_.subnets || saved_.empty()) return;
  // All have had the same round, of which some may be gone.
  const uint64_t told = saved_.begin()->second.request.sites();
  const auto sites = static_cast<double>(told > 0 ? told : saved_.size());
  for (const int weight : facts_.weights_of_mean_share) {
    manifest->parameters[weight].export_factor = 1.0 / sites;
  }
}

void CheckpointFiles::Save(v1::CheckpointsState* state) const {
  for (const auto& [server, part] : parts_) {
    state->add_part_servers(static_cast<uint32_t>(server.value()));
    *state->add_parts() = part;
  }
  for (const auto& [rank, file] : saved_) {
    state->add_saved_ranks(static_cast<uint32_t>(rank.value()));
    v1::SavedRequest& request = *state->add_saved();
    request = file.request;
    request.set_member(file.member.value());
  }
  state->set_copied_at(absl::ToUnixNanos(copied_at_));
}

absl::Status CheckpointFiles::Load(const v1::CheckpointsState& state) {
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
  return absl::OkStatus();
}

}  // namespace tessera
