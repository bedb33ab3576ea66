#include "server/control/state_times.h"

#include <algorithm>

namespace tessera {
namespace {

// Between then and now. The clock of the day may have been set meanwhile, or be another machine's.
absl::Duration Since(const v1::CoordinatorState& state, const StateMoment& now,
                     absl::Duration longest) {
  const bool is_same_clock = !now.clock_name.empty() && state.clock_name() == now.clock_name;
  const absl::Duration since = is_same_clock ? now.steady - absl::FromUnixNanos(state.saved_at())
                                             : now.day - absl::FromUnixNanos(state.saved_at_day());
  return std::clamp(since, absl::ZeroDuration(), longest);
}

}  // namespace

void Stamp(const StateMoment& now, v1::CoordinatorState* state) {
  state->set_saved_at(absl::ToUnixNanos(now.steady));
  state->set_clock_name(now.clock_name);
  state->set_saved_at_day(absl::ToUnixNanos(now.day));
}

void ShiftTimes(const StateMoment& now, absl::Duration longest, v1::CoordinatorState* state) {
  const int64_t by = absl::ToUnixNanos(now.steady) - state->saved_at();
  const bool is_over = state->ended_at() > 0;
  const int64_t counted = is_over ? 0 : absl::ToInt64Nanoseconds(Since(*state, now, longest));
  const auto shifted = [by](int64_t time) { return time > 0 ? time + by : time; };
  // These are moments even where they lie before the start of the machine, and not above 0.
  state->set_created(state->created() + by - counted);
  if (state->clock().running()) {
    state->mutable_clock()->set_since(state->clock().since() + by - counted);
  }
  Stamp(now, state);
  state->set_ending_since(shifted(state->ending_since()));
  state->set_ended_at(shifted(state->ended_at()));
  if (state->has_drain_since()) state->set_drain_since(shifted(state->drain_since()));
  v1::MembershipState& membership = *state->mutable_membership();
  membership.set_rejoin_until(shifted(membership.rejoin_until()));
  for (v1::ServerState& server : *membership.mutable_servers()) {
    server.set_counters_at(shifted(server.counters_at()));
    server.set_last_heard(shifted(server.last_heard()));
    server.set_detached(shifted(server.detached()));
  }
  for (v1::MemberState& member : *membership.mutable_members()) {
    member.set_progressed_at(shifted(member.progressed_at()));
    member.set_last_heard(shifted(member.last_heard()));
  }
  for (v1::LeaverState& leaver : *state->mutable_leavers()) {
    leaver.set_since(shifted(leaver.since()));
  }
  if (membership.has_owners()) {
    v1::OwnersState& owners = *membership.mutable_owners();
    owners.set_leaving_since(shifted(owners.leaving_since()));
    for (v1::OwnersState::Host& host : *membership.mutable_owners()->mutable_hosts()) {
      host.set_last_heard(shifted(host.last_heard()));
      host.set_detached(shifted(host.detached()));
    }
    for (v1::OwnersState::Shard& shard : *membership.mutable_owners()->mutable_shards()) {
      shard.set_noticed(shifted(shard.noticed()));
      shard.set_retry(shifted(shard.retry()));
      shard.set_lost(shifted(shard.lost()));
    }
  }
  v1::CheckpointsState& checkpoints = *state->mutable_checkpoints();
  checkpoints.set_copied_at(shifted(checkpoints.copied_at()));
  checkpoints.set_whole_at(shifted(checkpoints.whole_at()));
  checkpoints.set_try_last_at(shifted(checkpoints.try_last_at()));
}

}  // namespace tessera
