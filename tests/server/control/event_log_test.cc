#include "server/control/event_log.h"

#include <set>
#include <string>

#include <catch2/catch.hpp>

namespace tessera {
namespace {

TEST_CASE("events are numbered from 1, and the oldest go", "[control][events]") {
  EventLog log;
  CHECK(log.count() == 0);
  CHECK(log.After(0).events().empty());
  for (size_t i = 0; i < kEventsKept + 7; ++i) {
    log.Add(EventKind::kJoined, static_cast<double>(i), "worker 1", "joined");
  }
  CHECK(log.events().size() == kEventsKept);
  CHECK(log.count() == kEventsKept + 7);
  CHECK(log.events().front().number() == 8);
  v1::JobStatus status;
  log.Fill(&status);
  CHECK(status.events_size() == kEventsInStatus);
  CHECK(status.events().rbegin()->number() == log.count());
  CHECK(status.event_count() == log.count());
}

TEST_CASE("whoever asks behind the last event that came gets each event once",
          "[control][events]") {
  EventLog log;
  for (int i = 0; i < 250; ++i) log.Add(EventKind::kLost, i, "worker 1", "lost");
  uint64_t last = 0, calls = 0;
  while (last < log.count()) {
    const v1::EventsReply reply = log.After(last);
    REQUIRE(reply.event_count() == 250);
    REQUIRE(!reply.events().empty());
    for (const v1::JobEvent& event : reply.events()) REQUIRE(event.number() == ++last);
    ++calls;
  }
  CHECK(calls == 3);
  CHECK(log.After(250).events().empty());
  CHECK(log.After(UINT64_MAX).events().empty());
}

TEST_CASE("numbers below the oldest event that is kept begin with that one", "[control][events]") {
  EventLog log;
  for (size_t i = 0; i < kEventsKept + 50; ++i) log.Add(EventKind::kLost, 1, "w", "lost");
  CHECK(log.After(3).events(0).number() == 51);
  CHECK(log.After(50).events(0).number() == 51);
  CHECK(log.After(51).events(0).number() == 52);
}

TEST_CASE("words of an event are UTF-8 and bounded", "[control][events]") {
  EventLog log;
  log.Add(EventKind::kEnded, 1, "job", std::string(10000, 'x'));
  log.Add(EventKind::kEnded, 1, "job", "a\xff");
  CHECK(log.events()[0].words().size() <= kEventWordsMax + 3);
  CHECK(log.events()[1].words() == "a\\xff");
}

TEST_CASE("each kind of event has a name of its own", "[control][events]") {
  std::set<absl::string_view> names;
  for (int i = 0; i < kEventKinds; ++i) names.insert(NameOf(static_cast<EventKind>(i)));
  CHECK(names.size() == kEventKinds);
  CHECK(names.count("") == 0);
}

TEST_CASE("events that are saved are loaded, and those with a gap are refused",
          "[control][events]") {
  EventLog log;
  for (size_t i = 0; i < kEventsKept + 5; ++i) log.Add(EventKind::kLost, 1, "w", "lost");
  v1::CoordinatorState state;
  log.Save(&state);
  EventLog loaded;
  REQUIRE(loaded.Load(state).ok());
  CHECK(loaded.count() == log.count());
  loaded.Add(EventKind::kLost, 2, "w", "lost");
  CHECK(loaded.events().back().number() == log.count() + 1);

  state.mutable_events(3)->set_number(2);
  CHECK(absl::IsInvalidArgument(EventLog().Load(state)));
  v1::CoordinatorState many;
  for (size_t i = 0; i <= kEventsKept; ++i) many.add_events()->set_number(i + 1);
  CHECK(absl::IsInvalidArgument(EventLog().Load(many)));
}

}  // namespace
}  // namespace tessera
