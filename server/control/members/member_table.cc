#include "server/control/members/member_table.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/utf8.h"
#include "common/checkpoint/manifest.h"

namespace tessera {
namespace {

// What a worker says of the hardware that it computes on, and why a member ended.
constexpr size_t kHardwareBytesMax = 256;
constexpr size_t kEndedBytesMax = 1024;

// Without half a character at its end, which nobody could read in a message.
void Cut(size_t bytes_max, std::string* text) {
  if (text->size() > bytes_max) {
    text->resize(Utf8PrefixBytes(absl::string_view(*text).substr(0, bytes_max)));
  }
}

}  // namespace

MemberTable::MemberTable(const JobFacts& facts) : facts_(facts) {}

MemberId MemberTable::Add(const v1::JoinRequest& request, Rank rank, absl::Time now) {
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
  // The limits of all progress (progress_limits.h) hold, but a member that leaves is not turned away for it.
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
  if (IsCounted(record->state)) last_left_ = how == MemberState::kLeft;
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

std::vector<MemberId> MemberTable::EndedLongAgo() const {
  std::vector<MemberId> found;
  if (ended_.size() <= kEndedKept) return found;
  size_t left = ended_.size() - kEndedKept;
  for (auto it = ended_.begin(); left > 0; ++it, --left) found.push_back(it->second);
  return found;
}

bool MemberTable::IsForgotten(MemberId member) const {
  return member != MemberId() && member <= last() && Find(member) == nullptr;
}

void MemberTable::Forget(MemberId member, uint64_t examples) {
  const MemberRecord& record = records_.at(member);
  TESSERA_CHECK(!IsLive(record.state));
  forgotten_.Add(record, examples);
  if (const auto life = by_life_.find(record.life);
      life != by_life_.end() && life->second == member) {
    by_life_.erase(life);
  }
  --in_state_[static_cast<size_t>(record.state)];
  ended_.erase(record.ending);
  records_.erase(member);
}

void MemberTable::UndoSince(uint64_t step) {
  forgotten_.UndoSince(step);
  for (auto& [id, record] : records_) record.UndoSince(step);
  last_left_ = false;
}

void MemberTable::Save(v1::MembershipState* state) const {
  if (forgotten().count() > 0) *state->mutable_forgotten() = forgotten();
  for (const auto& [id, record] : records_) record.Save(state->add_members());
  state->set_last_left(last_left_);
}

absl::Status MemberTable::Load(const v1::MembershipState& state) {
  TESSERA_CHECK(records_.empty());
  forgotten_.Load(state.forgotten());
  last_left_ = state.last_left();
  const uint64_t count = static_cast<uint64_t>(state.members_size()) + forgotten().count();
  MemberId before;
  for (const v1::MemberState& saved : state.members()) {
    TESSERA_ASSIGN_OR_RETURN(MemberRecord record, MemberRecord::Load(saved));
    const MemberId member = record.member;
    // Ids count from 1 without gaps but for those forgotten: the next one follows from how many there were.
    const uint64_t most = before.value() + forgotten().count() + 1;
    if (member <= before || member.value() > std::min(count, most)) {
      return absl::InvalidArgumentError(
          absl::StrCat("member ", member.value(), " comes after ", records_.size(), " others"));
    }
    before = member;
    if (IsLive(record.state) && !live_.emplace(record.rank, member).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("member ", member.value(), " has the rank of another"));
    }
    if (record.life != 0) by_life_[record.life] = member;
    ++in_state_[static_cast<size_t>(record.state)];
    if (!IsLive(record.state)) {
      // An older state does not say: members ended in the order in which they came.
      if (record.ending == 0) record.ending = endings_ + 1;
      endings_ = std::max(endings_, record.ending);
      if (!ended_.emplace(record.ending, member).second) {
        return absl::InvalidArgumentError(
            absl::StrCat("member ", member.value(), " has the end of another"));
      }
    }
    records_.emplace(member, std::move(record));
  }
  ++changes_;
  return absl::OkStatus();
}

void MemberTable::ExtendLeases(absl::Time now) {
  for (auto& [id, record] : records_) {
    if (!IsLive(record.state) && !MayRejoin(record.state)) continue;
    record.last_heard = now;
    record.stall.Excuse(now);
  }
}

}  // namespace tessera
