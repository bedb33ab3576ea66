// The coordinator goes on in another process from what it has kept.
#include <random>

#include <catch2/catch.hpp>
#include <google/protobuf/stubs/logging.h>

#include "common/base/log.h"
#include "tests/server/control/random_schedule.h"

namespace tessera {
namespace {

TEST_CASE("one that is saved and loaded after every event does what one that is not does",
          "[control][state][sim]") {
  SetLogLevel(LogLevel::kError);
  for (uint32_t seed = 0; seed < 40; ++seed) {
    for (bool synchronous : {true, false}) {
      INFO("seed " << seed << (synchronous ? " synchronous" : " asynchronous"));
      const v1::JobStatus plain = Schedule(seed, synchronous).Run();
      const v1::JobStatus loaded = Schedule(seed, synchronous, Upheaval::kReload).Run();
      REQUIRE(loaded.DebugString() == plain.DebugString());
    }
  }
}

TEST_CASE("whenever it is killed, it goes on from what was kept, and every job ends",
          "[control][state][sim]") {
  SetLogLevel(LogLevel::kError);
  int restarts = 0;
  for (uint32_t seed = 0; seed < 200; ++seed) {
    for (bool synchronous : {true, false}) {
      INFO("seed " << seed << (synchronous ? " synchronous" : " asynchronous"));
      Schedule schedule(seed, synchronous, Upheaval::kRestart);
      schedule.Run();
      restarts += schedule.restarts();
    }
  }
  CHECK(restarts > 1000);
}

TEST_CASE("leases begin anew when another process goes on", "[control][state]") {
  SetLogLevel(LogLevel::kError);
  ControlFixture f(ControlFixture::Facts(1, 2));
  f.Start(2);
  // Away for longer than a lease.
  f.now += absl::Seconds(60);
  f.Restart();
  REQUIRE(f.Attach(0).ok());
  f.Tick(absl::Seconds(9));
  CHECK(f.StateOf(1) == MemberState::kAdmitted);
  REQUIRE(f.Renew(1).ok());
  f.Heartbeat();
  f.Tick(absl::Seconds(2));
  CHECK(f.StateOf(1) == MemberState::kAdmitted);
  // This one has not come back.
  CHECK(f.StateOf(2) == MemberState::kLost);
}

TEST_CASE("a server that had what is lost takes the job back to its checkpoint",
          "[control][state]") {
  SetLogLevel(LogLevel::kError);
  JobFacts facts = ControlFixture::Facts(2, 1);
  ControlFixture f(facts);
  f.Start(1);
  f.Restart();
  REQUIRE(f.Attach(1).ok());
  // Server 0 was in the process that died, and there is no checkpoint.
  f.servers[0].hello.set_life(999);
  CHECK(absl::IsFailedPrecondition(f.Attach(0)));
  f.Tick(absl::Milliseconds(1));
  REQUIRE_FALSE(f.coordinator->outcome().ok());
  CHECK(f.coordinator->outcome().message().find("server 0 is gone") != absl::string_view::npos);
}

TEST_CASE("who takes the job over tells how it was started itself, and when the job first was",
          "[control][state]") {
  SetLogLevel(LogLevel::kError);
  JobFacts facts = ControlFixture::Facts(1, 1);
  const auto first = std::move(Coordinator::Create(facts, absl::FromUnixSeconds(1))).value();
  // As in a test, a simulation: nobody said.
  CHECK_FALSE(first->Status(absl::FromUnixSeconds(2)).has_origin());
  facts.origin.set_started_ns(1000);
  facts.origin.set_command("first");
  const auto told = std::move(Coordinator::Create(facts, absl::FromUnixSeconds(1))).value();
  CHECK(told->Status(absl::FromUnixSeconds(2)).origin().command() == "first");
  facts.origin.set_started_ns(5000);
  facts.origin.set_command("second");
  auto next = Coordinator::Load(facts, told->Save());
  REQUIRE(next.ok());
  for (int i = 0; i < 2; ++i) {
    const v1::JobOrigin origin = (*next)->Status(absl::FromUnixSeconds(3)).origin();
    CHECK(origin.command() == "second");
    CHECK(origin.started_ns() == 1000);
    next = Coordinator::Load(facts, (*next)->Save());
    REQUIRE(next.ok());
  }
  // A state of an older build does not say.
  v1::CoordinatorState older = told->Save();
  older.clear_started_ns();
  CHECK(
      (*Coordinator::Load(facts, older))->Status(absl::FromUnixSeconds(3)).origin().started_ns() ==
      5000);
}

TEST_CASE("a state that is of another job, or broken, is refused", "[control][state]") {
  SetLogLevel(LogLevel::kError);
  JobFacts facts = ControlFixture::Facts(2, 2);
  facts.digest = "d1";
  facts.layout_hash = 77;
  ControlFixture f(facts);
  f.Start(2);
  const v1::CoordinatorState whole = f.coordinator->Save();
  REQUIRE(Coordinator::Load(facts, whole).ok());

  v1::CoordinatorState state = whole;
  state.set_job_digest("d2");
  CHECK(absl::IsInvalidArgument(Coordinator::Load(facts, state).status()));
  state = whole;
  state.set_format(2);
  CHECK(absl::IsInvalidArgument(Coordinator::Load(facts, state).status()));
  state = whole;
  state.mutable_membership()->mutable_servers()->RemoveLast();
  CHECK(absl::IsInvalidArgument(Coordinator::Load(facts, state).status()));
  state = whole;
  state.mutable_membership()->mutable_members(1)->set_rank(0);
  CHECK(absl::IsInvalidArgument(Coordinator::Load(facts, state).status()));
  state = whole;
  state.mutable_membership()->mutable_members(1)->set_state(99);
  CHECK(absl::IsInvalidArgument(Coordinator::Load(facts, state).status()));
  state = whole;
  state.mutable_membership()->set_saved(1);
  CHECK(absl::IsInvalidArgument(Coordinator::Load(facts, state).status()));
  state = whole;
  state.mutable_evaluation()->add_seats()->set_member(7);
  CHECK(absl::IsInvalidArgument(Coordinator::Load(facts, state).status()));

  // Whatever the bytes are, loading them ends no process.
  const google::protobuf::LogSilencer silence;
  const std::string bytes = whole.SerializeAsString();
  std::mt19937 random(1);
  for (int i = 0; i < 20000; ++i) {
    std::string broken = bytes;
    broken[random() % broken.size()] ^= static_cast<char>(1 << random() % 8);
    v1::CoordinatorState parsed;
    if (parsed.ParseFromString(broken)) (void)Coordinator::Load(facts, parsed);
  }
}

}  // namespace
}  // namespace tessera
