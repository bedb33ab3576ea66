// MemberTable: to and from the coordinator's state.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/limits.h"
#include "server/control/member_table.h"

namespace tessera {

void MemberTable::Save(v1::MembershipState* state) const {
  if (forgotten_.count() > 0) *state->mutable_forgotten() = forgotten_;
  for (const auto& [id, record] : records_) {
    v1::MemberState& member = *state->add_members();
    member.set_member(id.value());
    member.set_rank(static_cast<uint32_t>(record.rank.value()));
    member.set_state(static_cast<uint32_t>(record.state));
    member.set_life(record.life);
    member.set_description(record.description);
    member.set_address(record.address);
    member.set_rows(record.rows);
    member.set_train_sum(record.train_sum);
    member.set_test_sum(record.test_sum);
    member.set_values(record.values);
    member.set_ended(record.ended);
    member.set_last_heard(absl::ToUnixNanos(record.last_heard));
    member.set_progressed_at(absl::ToUnixNanos(record.progressed_at));
    *member.mutable_progress() = record.progress;
    member.set_examples_per_second(record.examples_per_second);
    member.set_first_exchange(record.first_exchange.value());
    member.set_first_step(record.first_step);
    member.set_planned_in(record.planned_in.value());
    member.set_restored(record.restored);
    member.set_drain_seen(record.drain_seen);
    member.set_ending(record.ending);
    if (record.site_until) member.set_site_until(record.site_until->value());
    if (record.told_checkpoint) member.set_told_checkpoint(*record.told_checkpoint);
    if (record.report) *member.mutable_report() = *record.report;
    for (ShardId server : record.counted_by) {
      member.add_counted_by(static_cast<uint32_t>(server.value()));
    }
    for (const auto& [server, exchange] : record.last_counted) {
      member.add_last_counted_by(static_cast<uint32_t>(server.value()));
      member.add_last_counted(exchange.value());
    }
  }
}

absl::StatusOr<MemberRecord> MemberTable::LoadRecord(const v1::MemberState& state) {
  const bool is_right = state.rank() < kRankEnd &&
                        state.state() <= static_cast<uint32_t>(MemberState::kMissed) &&
                        state.last_counted_by_size() == state.last_counted_size();
  if (!is_right) {
    return absl::InvalidArgumentError(absl::StrCat("member ", state.member(), " has rank ",
                                                   state.rank(), ", state ", state.state(), " and ",
                                                   state.last_counted_size(), " last exchanges of ",
                                                   state.last_counted_by_size(), " servers"));
  }
  MemberRecord record;
  record.member = MemberId(state.member());
  record.rank = Rank(state.rank());
  record.state = static_cast<MemberState>(state.state());
  record.life = state.life();
  record.description = state.description();
  record.address = state.address();
  record.rows = state.rows();
  record.train_sum = state.train_sum();
  record.test_sum = state.test_sum();
  if (v1::ValueKind_IsValid(static_cast<int>(state.values()))) {
    record.values = static_cast<v1::ValueKind>(state.values());
  }
  record.ended = state.ended();
  record.last_heard = absl::FromUnixNanos(state.last_heard());
  record.progressed_at = absl::FromUnixNanos(state.progressed_at());
  record.progress = state.progress();
  record.examples_per_second = state.examples_per_second();
  record.first_exchange = Exchange(state.first_exchange());
  record.first_step = state.first_step();
  record.planned_in = Generation(state.planned_in());
  record.restored = state.restored();
  record.drain_seen = state.drain_seen();
  record.ending = state.ending();
  if (state.has_site_until()) record.site_until = Exchange(state.site_until());
  if (state.has_told_checkpoint()) record.told_checkpoint = state.told_checkpoint();
  if (state.has_report()) record.report = state.report();
  for (const uint32_t server : state.counted_by()) record.counted_by.insert(ShardId(server));
  for (int i = 0; i < state.last_counted_size(); ++i) {
    record.last_counted[ShardId(state.last_counted_by(i))] = Exchange(state.last_counted(i));
  }
  return record;
}

absl::Status MemberTable::Load(const v1::MembershipState& state) {
  TESSERA_CHECK(records_.empty());
  forgotten_ = state.forgotten();
  const uint64_t count = static_cast<uint64_t>(state.members_size()) + forgotten_.count();
  MemberId before;
  for (const v1::MemberState& saved : state.members()) {
    TESSERA_ASSIGN_OR_RETURN(MemberRecord record, LoadRecord(saved));
    const MemberId member = record.member;
    // Ids count from 1 without gaps but for those forgotten: the next one follows from how many there were.
    const uint64_t most = before.value() + forgotten_.count() + 1;
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
      // Those of an older state, which does not say, in the order in which they came.
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
