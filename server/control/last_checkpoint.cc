#include "server/control/last_checkpoint.h"

#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"

namespace tessera {

bool LastCheckpoint::OnFinished(MemberId member, bool writes_again) {
  const bool is_new = finished_.insert(member).second;
  return (!writes_again && !std::exchange(writes_once_, true)) || is_new;
}

std::string LastCheckpoint::OnFailed(absl::Time now) {
  if (!begun_) return "training goes on";
  if (writes_once_ || ++failures_ >= kTries) {
    over_ = true;
    return "the job ends without it";
  }
  try_at_ = now + kPause;
  return absl::StrCat("it is the last one, tried again in ", absl::FormatDuration(kPause), ", ",
                      failures_ + 1, " of ", kTries);
}

bool LastCheckpoint::TakeTry(absl::Time now) {
  if (!try_at_ || now < *try_at_) return false;
  try_at_.reset();
  // Somebody who finished meanwhile has gone, and nobody has its values.
  over_ = writes_once_;
  return !over_;
}

void LastCheckpoint::Save(v1::CheckpointsState* state) const {
  for (MemberId member : finished_) state->add_finished(member.value());
  state->set_is_last(begun_);
  state->set_last_made(over_);
  state->set_writes_once(writes_once_);
  state->set_last_failures(static_cast<uint32_t>(failures_));
  state->set_try_last_at(try_at_ ? absl::ToUnixNanos(*try_at_) : 0);
}

absl::Status LastCheckpoint::Load(const v1::CheckpointsState& state, bool is_idle) {
  const bool may_try = state.is_last() && is_idle;
  if (state.last_failures() > kTries || (state.try_last_at() != 0 && !may_try)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "last checkpoint has failed ", state.last_failures(), " times, in stage ", state.stage()));
  }
  finished_.clear();
  for (const uint64_t member : state.finished()) finished_.insert(MemberId(member));
  begun_ = state.is_last();
  over_ = state.last_made();
  writes_once_ = state.writes_once();
  failures_ = static_cast<int>(state.last_failures());
  try_at_.reset();
  if (state.try_last_at() != 0) try_at_ = absl::FromUnixNanos(state.try_last_at());
  return absl::OkStatus();
}

}  // namespace tessera
