#include "server/control/event_log.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/utf8.h"

namespace tessera {
namespace {

// In the order of EventKind.
constexpr absl::string_view kNames[] = {
    "joined",
    "admitted",
    "left",
    "lost",
    "attached",
    "disconnected",
    "returned",
    "server_left",
    "server_lost",
    "took_over",
    "began",
    "evaluated",
    "drain",
    "ended",
    "checkpoint",
    "checkpoint_failed",
    "went_back",
    "refused",
    "coordinator_moved",
};
static_assert(sizeof(kNames) / sizeof(kNames[0]) == kEventKinds);

}  // namespace

absl::string_view NameOf(EventKind kind) { return kNames[static_cast<int>(kind)]; }

void EventLog::Add(EventKind kind, double seconds, absl::string_view who, absl::string_view words) {
  v1::JobEvent event;
  event.set_number(++count_);
  event.set_seconds(seconds);
  event.set_kind(std::string(NameOf(kind)));
  event.set_who(std::string(who));
  event.set_words(CutText(ToUtf8(words), kEventWordsMax));
  events_.push_back(std::move(event));
  if (events_.size() > kEventsKept) events_.pop_front();
  ++changes_;
}

void EventLog::Fill(v1::JobStatus* status) const {
  const size_t shown = std::min(events_.size(), kEventsInStatus);
  for (size_t i = events_.size() - shown; i < events_.size(); ++i) {
    *status->add_events() = events_[i];
  }
  status->set_event_count(count_);
}

v1::EventsReply EventLog::After(uint64_t after) const {
  v1::EventsReply reply;
  reply.set_event_count(count_);
  if (events_.empty()) return reply;
  // Numbers have no gap, so that the place of one follows from the first.
  const uint64_t first = events_.front().number();
  const uint64_t skipped = after < first ? 0 : after - first + 1;
  for (uint64_t i = skipped; i < events_.size() && i - skipped < kEventsInReply; ++i) {
    *reply.add_events() = events_[i];
  }
  return reply;
}

void EventLog::Save(v1::CoordinatorState* state) const {
  for (const v1::JobEvent& event : events_) *state->add_events() = event;
}

absl::Status EventLog::Load(const v1::CoordinatorState& state) {
  events_.assign(state.events().begin(), state.events().end());
  count_ = events_.empty() ? 0 : events_.back().number();
  const auto wrong = [](absl::string_view why) {
    return absl::InvalidArgumentError(absl::StrCat("events: ", why));
  };
  if (events_.size() > kEventsKept) {
    return wrong(absl::StrCat(events_.size(), " of them, want at most ", kEventsKept));
  }
  uint64_t next = events_.empty() ? 0 : events_.front().number();
  for (const v1::JobEvent& event : events_) {
    if (event.number() == 0 || event.number() != next++) {
      return wrong(absl::StrCat("number ", event.number(), ", want numbers from 1 without a gap"));
    }
  }
  return absl::OkStatus();
}

}  // namespace tessera
