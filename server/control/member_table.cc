#include "server/control/member_table.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/check.h"
#include "common/base/limits.h"
#include "common/base/utf8.h"
#include "common/checkpoint/manifest.h"
#include "common/method/train_rows.h"
#include "common/rpc/control_protocol.h"
#include "server/control/digest_check.h"
#include "server/control/saved_job.h"

namespace tessera {
namespace {

// Weight of the newest rate: about the last five renewals count.
constexpr double kRateWeight = 0.4;
// A speed beyond it is no measurement: as if none had been told.
constexpr double kStepsPerSecondMax = 1e9;
// Of a worker in words: host and process.
constexpr size_t kDescriptionBytesMax = 1024;
// What a worker says of the hardware that it computes on, and why a member ended.
constexpr size_t kHardwareBytesMax = 256;
constexpr size_t kEndedBytesMax = 1024;
// Servers and the evaluation know for ever that there was one.
constexpr size_t kMembersEver = size_t{1} << 17;

// Without half a character at its end, which nobody could read in a message.
void Cut(size_t bytes_max, std::string* text) {
  if (text->size() > bytes_max) {
    text->resize(Utf8PrefixBytes(absl::string_view(*text).substr(0, bytes_max)));
  }
}

}  // namespace

bool MemberRecord::has_partial_push() const {
  if (last_counted.size() != counted_by.size()) return false;
  return std::any_of(last_counted.begin(), last_counted.end(), [this](const auto& counted) {
    return counted.second != last_counted.begin()->second;
  });
}

MemberTable::MemberTable(const JobFacts& facts) : facts_(facts) {}

// Those that the job waits for are told when it begins; this is for one more.
absl::Status MemberTable::CheckRows(const v1::JoinRequest& request) const {
  const uint64_t live = live_.size();
  if (facts_.members_max > 0 && live >= static_cast<uint64_t>(facts_.members_max)) {
    return absl::InvalidArgumentError(
        absl::StrCat("join: hidden neurons in the smallest layer are ", facts_.members_max,
                     ", want more than the ", live, " workers; there is no part for one more"));
  }
  if (facts_.rows_are_local || live < static_cast<uint64_t>(facts_.workers)) {
    return absl::OkStatus();
  }
  const absl::StatusOr<int64_t> steps = EpochSteps(
      static_cast<int64_t>(request.rows()), static_cast<int64_t>(live) + 1, facts_.batch_size);
  if (steps.ok()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("join: ", steps.status().message(), "; there is no work for one more"));
}

absl::Status MemberTable::Check(const v1::JoinRequest& request) const {
  if (request.protocol() != kControlProtocol) {
    return absl::InvalidArgumentError(absl::StrCat("join: protocol is ", request.protocol(),
                                                   ", want ", kControlProtocol,
                                                   "; all must run the same build"));
  }
  TESSERA_RETURN_IF_ERROR(CheckDigest("join", request.job_digest(), request.job_text(), facts_));
  // 0: a client that learns the layout from the reply.
  if (request.layout_hash() != 0 && request.layout_hash() != facts_.layout_hash) {
    return absl::InvalidArgumentError(
        absl::StrFormat("join: layout hash is %016x, want %016x; all must run the same build",
                        request.layout_hash(), facts_.layout_hash));
  }
  if (request.has_rank() && request.rank() >= kRankEnd) {
    return absl::InvalidArgumentError(
        absl::StrCat("join: rank is ", request.rank(), ", want one in [0, ", kRankEnd, ")"));
  }
  if (request.description().size() > kDescriptionBytesMax) {
    return absl::InvalidArgumentError(absl::StrCat("join: description is ",
                                                   request.description().size(),
                                                   " bytes, want at most ", kDescriptionBytesMax));
  }
  if (request.address().size() > kDescriptionBytesMax) {
    return absl::InvalidArgumentError(absl::StrCat("join: address is ", request.address().size(),
                                                   " bytes, want at most ", kDescriptionBytesMax));
  }
  if (last().value() >= kMembersEver) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "join: ", last().value(), " workers have joined since the coordinator began, want at most ",
        kMembersEver, "; let the job go on from a checkpoint"));
  }
  if (request.rows() == 0) {
    return absl::InvalidArgumentError("join: training rows are 0, want at least 1");
  }
  if (request.rows() > kMemberRowsMax) {
    return absl::InvalidArgumentError(absl::StrCat("join: training rows are ", request.rows(),
                                                   ", want at most ", kMemberRowsMax));
  }
  TESSERA_RETURN_IF_ERROR(CheckValues(request));
  if (facts_.rows_are_local) return absl::OkStatus();
  if (live_.empty()) return absl::OkStatus();
  // They all have as many as the first.
  const MemberRecord& other = records_.at(live_.begin()->second);
  if (other.rows != request.rows()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "join: training rows are ", request.rows(), ", want ", other.rows, " as worker ",
        other.rank.value(), " has; its data differ, or data.partition should be local"));
  }
  for (const auto& [rank, member] : live_) {
    const MemberRecord& record = records_.at(member);
    const auto differ = [](uint64_t a, uint64_t b) { return a != 0 && b != 0 && a != b; };
    const bool trains_others = differ(record.train_sum, request.train_sum());
    if (!trains_others && !differ(record.test_sum, request.test_sum())) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("join: its ", trains_others ? "training" : "test",
                     " data are not those of worker ", rank.value(), " (", record.description,
                     "): other rows, values or labels; give both the same files, or set "
                     "data.partition to local"));
  }
  return absl::OkStatus();
}

// Where rows are each worker's own, nothing but this shows that one file has shades from 0 to 255 and another the same
// shades from 0 to 1.
absl::Status MemberTable::CheckValues(const v1::JoinRequest& request) const {
  const auto words = [](v1::ValueKind kind) {
    return kind == v1::VALUES_BYTES ? "bytes, which are divided by 255"
                                    : "numbers that are taken as they are";
  };
  if (request.values() == v1::VALUES_UNKNOWN) return absl::OkStatus();
  for (const auto& [rank, member] : live_) {
    const MemberRecord& record = records_.at(member);
    if (record.values == v1::VALUES_UNKNOWN || record.values == request.values()) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "join: its data are ", words(request.values()), ", want ", words(record.values),
        ", as those of worker ", rank.value(), " (", record.description,
        ") are: one model would see rows on two scales; save all files as one type"));
  }
  return absl::OkStatus();
}

absl::Status MemberTable::CheckLayers(Rank rank, const v1::JoinRequest& request) const {
  if (facts_.front_workers == 0) return absl::OkStatus();
  if (rank.value() >= static_cast<uint64_t>(facts_.workers)) {
    return absl::InvalidArgumentError(
        absl::StrCat("join: rank is ", rank.value(), ", want one in [0, ", facts_.workers,
                     "); which layers a worker trains follows from its rank"));
  }
  if (facts_.has_data(rank) || !request.address().empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("join: address is empty, want host:port where the other workers reach it "
                   "(tessera-worker --listen); rank ",
                   rank.value(), " trains the linear layers"));
}

absl::StatusOr<MemberId> MemberTable::Add(const v1::JoinRequest& request, absl::Time now) {
  if (const MemberRecord* known = LiveOf(request.life()); known != nullptr) return known->member;
  TESSERA_RETURN_IF_ERROR(Check(request));
  Rank rank;
  if (request.has_rank()) {
    rank = Rank(request.rank());
    if (const MemberRecord* holder = LiveAt(rank); holder != nullptr) {
      return absl::AlreadyExistsError(absl::StrCat(
          "join: rank ", rank.value(), " is held by ", holder->description, ", last heard ",
          absl::FormatDuration(absl::Trunc(now - holder->last_heard, absl::Milliseconds(1))),
          " ago; choose another, or wait until its lease of ",
          absl::FormatDuration(facts_.lease_timeout), " is over"));
    }
  } else {
    for (const auto& [taken, member] : live_) {
      if (taken != rank) break;
      rank = rank.Next();
    }
    if (rank.value() >= kRankEnd) return absl::ResourceExhaustedError("join: no rank is free");
    if (facts_.front_workers > 0 && rank.value() >= static_cast<uint64_t>(facts_.workers)) {
      return absl::AlreadyExistsError(
          absl::StrCat("join: all ", facts_.workers,
                       " ranks are held, and which layers a worker trains follows from its rank; ",
                       "if one of their workers is gone, wait until its lease of ",
                       absl::FormatDuration(facts_.lease_timeout), " is over"));
    }
  }
  TESSERA_RETURN_IF_ERROR(CheckLayers(rank, request));
  TESSERA_RETURN_IF_ERROR(CheckRows(request));
  const MemberId member = last().Next();
  MemberRecord& record = records_[member];
  record.member = member;
  record.rank = rank;
  record.life = request.life();
  if (record.life != 0) by_life_[record.life] = member;
  live_[rank] = member;
  ++in_state_[static_cast<size_t>(record.state)];
  ++changes_;
  record.description = request.description();
  record.address = request.address();
  record.rows = request.rows();
  record.train_sum = request.train_sum();
  record.test_sum = request.test_sum();
  record.values = request.values();
  record.last_heard = now;
  record.progressed_at = now;
  if (MemberRecord* const before = Find(MemberId(request.continues()));
      before != nullptr && MayRejoin(before->state)) {
    record.progress.mutable_traffic()->Swap(before->progress.mutable_traffic());
    record.progress.mutable_phases()->Swap(before->progress.mutable_phases());
  }
  return member;
}

absl::Status MemberTable::Touch(MemberId member, absl::Time now) {
  MemberRecord* record = Find(member);
  if (IsForgotten(member)) {
    return absl::FailedPreconditionError(
        absl::StrCat("member ", member.value(), " is no longer a member: it ended long ago"));
  }
  if (record == nullptr) {
    return absl::NotFoundError(absl::StrCat("member ", member.value(), ": there is none"));
  }
  if (!IsLive(record->state)) {
    return absl::FailedPreconditionError(absl::StrCat("worker ", record->rank.value(), " (member ",
                                                      member.value(),
                                                      ") is no longer a member: ", record->ended));
  }
  record->last_heard = now;
  return absl::OkStatus();
}

void MemberTable::OnProgress(MemberId member, const v1::Progress& progress, absl::Time now) {
  MemberRecord* record = Find(member);
  TESSERA_CHECK(record != nullptr);
  // An older message that came late. Steps may become fewer: what went with no exchange counts no more.
  const bool is_older = progress.beats() > 0 ? progress.beats() < record->progress.beats()
                                             : progress.step() < record->progress.step();
  if (is_older) return;
  if (progress.step() > record->progress.step()) {
    const double seconds = absl::ToDoubleSeconds(now - record->progressed_at);
    if (seconds > 0 && progress.examples() >= record->progress.examples()) {
      const double rate = (progress.examples() - record->progress.examples()) / seconds;
      record->examples_per_second =
          record->examples_per_second == 0
              ? rate
              : (1 - kRateWeight) * record->examples_per_second + kRateWeight * rate;
    }
    record->progressed_at = now;
  }
  record->stall.OnProgress(progress, now);
  const v1::Progress before = record->progress;
  record->progress = progress;
  record->progress.DiscardUnknownFields();
  if (!progress.has_traffic()) *record->progress.mutable_traffic() = before.traffic();
  if (!progress.has_phases()) *record->progress.mutable_phases() = before.phases();
  // Shares and budgets are made of it, and whoever says that it is infinitely fast would spoil the others'.
  const double speed = progress.steps_per_second();
  if (!(speed >= 0 && speed <= kStepsPerSecondMax)) record->progress.set_steps_per_second(0);
}

void MemberTable::SetReport(MemberId member, const v1::WorkerReport& report) {
  MemberRecord* record = Find(member);
  TESSERA_CHECK(record != nullptr);
  v1::WorkerReport& kept = record->report.emplace(report);
  kept.DiscardUnknownFields();
  kept.set_rank(static_cast<uint32_t>(record->rank.value()));
  kept.set_member(member.value());
  Cut(kHardwareBytesMax, kept.mutable_backend());
  Cut(kHardwareBytesMax, kept.mutable_cpu());
  Cut(kHardwareBytesMax, kept.mutable_gpu());
  Cut(kHardwareBytesMax, kept.mutable_version());
  // As of all progress (progress_limits.h), but one that leaves is not turned away for it.
  kept.set_steps(std::min<uint64_t>(kept.steps(), kSavedStepEnd - 1));
  kept.set_examples(std::min<uint64_t>(kept.examples(), kSavedCountEnd - 1));
  ++changes_;
}

void MemberTable::SetState(MemberRecord* record, MemberState state) {
  --in_state_[static_cast<size_t>(record->state)];
  ++in_state_[static_cast<size_t>(state)];
  record->state = state;
  ++changes_;
}

void MemberTable::End(MemberId member, MemberState how, absl::string_view why) {
  MemberRecord* record = Find(member);
  TESSERA_CHECK(record != nullptr && IsLive(record->state) && !IsLive(how));
  SetState(record, how);
  live_.erase(record->rank);
  record->ended = std::string(why);
  Cut(kEndedBytesMax, &record->ended);
  record->ending = ++endings_;
  ended_[record->ending] = member;
  record->examples_per_second = 0;
}

std::vector<MemberId> MemberTable::Expired(absl::Time now) const {
  std::vector<MemberId> expired;
  for (const auto& [id, record] : records_) {
    if (IsLive(record.state) && now - record.last_heard > facts_.lease_timeout) {
      expired.push_back(id);
    }
  }
  return expired;
}

std::vector<MemberId> MemberTable::Stalled(absl::Time now) const {
  std::vector<MemberId> stalled;
  for (const auto& [id, record] : records_) {
    if (IsLive(record.state) && record.stall.IsOver(now, facts_.lease_timeout)) {
      stalled.push_back(id);
    }
  }
  return stalled;
}

MemberRecord* MemberTable::Find(MemberId member) {
  auto it = records_.find(member);
  return it == records_.end() ? nullptr : &it->second;
}

const MemberRecord* MemberTable::Find(MemberId member) const {
  auto it = records_.find(member);
  return it == records_.end() ? nullptr : &it->second;
}

std::vector<MemberRecord*> MemberTable::In(MemberState state) {
  std::vector<MemberRecord*> found;
  if (in_state_[static_cast<size_t>(state)] == 0) return found;
  for (auto& [id, record] : records_) {
    if (record.state == state) found.push_back(&record);
  }
  std::sort(found.begin(), found.end(),
            [](const MemberRecord* a, const MemberRecord* b) { return a->rank < b->rank; });
  return found;
}

const std::vector<const MemberRecord*>& MemberTable::Counted() const {
  if (counted_at_ == changes_) return counted_;
  counted_at_ = changes_;
  counted_.clear();
  for (const auto& [rank, member] : live_) {
    const MemberRecord& record = records_.at(member);
    if (IsCounted(record.state)) counted_.push_back(&record);
  }
  return counted_;
}

const MemberRecord* MemberTable::LiveAt(Rank rank) const {
  const auto found = live_.find(rank);
  return found == live_.end() ? nullptr : &records_.at(found->second);
}

const MemberRecord* MemberTable::LiveOf(uint64_t life) const {
  const auto found = by_life_.find(life);
  if (found == by_life_.end()) return nullptr;
  const MemberRecord& record = records_.at(found->second);
  return IsLive(record.state) ? &record : nullptr;
}

Exchange MemberTable::HighestExchange() const {
  Exchange highest(forgotten_.exchange());
  for (const auto& [id, record] : records_) {
    highest = std::max(highest, Exchange(record.progress.exchange()));
  }
  return highest;
}

uint64_t MemberTable::LeastStep() const {
  const std::vector<const MemberRecord*>& counted = Counted();
  uint64_t least = std::max<uint64_t>(forgotten_.step(), forgotten_.first_step());
  if (counted.empty()) {
    // All were lost: what the furthest of them did is in the parameters, and what it began with.
    for (const auto& [id, record] : records_) {
      least = std::max<uint64_t>(least, std::max(record.progress.step(), record.first_step));
    }
    return least;
  }
  least = std::numeric_limits<uint64_t>::max();
  for (const MemberRecord* record : counted) {
    least = std::min<uint64_t>(least, std::max(record->progress.step(), record->first_step));
  }
  return least;
}

Exchange MemberTable::LeastExchange() const {
  const auto furthest = [](uint64_t exchange, uint64_t first) {
    return Exchange(std::max<uint64_t>(exchange, first > 0 ? first - 1 : 0));
  };
  const auto reached = [&](const MemberRecord& record) {
    return furthest(record.progress.exchange(), record.first_exchange.value());
  };
  const std::vector<const MemberRecord*>& counted = Counted();
  Exchange least = furthest(forgotten_.exchange(), forgotten_.first_exchange());
  if (counted.empty()) {
    for (const auto& [id, record] : records_) least = std::max(least, reached(record));
    return least;
  }
  least = reached(*counted[0]);
  for (const MemberRecord* record : counted) least = std::min(least, reached(*record));
  return least;
}

uint64_t MemberTable::StepBudget(MemberId member) const {
  const MemberRecord* record = Find(member);
  const double speed = record == nullptr ? 0 : record->progress.steps_per_second();
  if (!(speed > 0)) return 0;
  double fastest = speed;
  for (const MemberRecord* other : Counted()) {
    fastest = std::max(fastest, other->progress.steps_per_second());
  }
  const double share = std::floor(static_cast<double>(facts_.local_steps) * speed / fastest);
  return std::max<uint64_t>(1, static_cast<uint64_t>(share));
}

}  // namespace tessera
