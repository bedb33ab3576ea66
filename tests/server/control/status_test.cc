#include <catch2/catch.hpp>
#include <cmath>

#include "tests/server/control/control_fixture.h"

namespace tessera {
namespace {

using Fixture = ControlFixture;

// A server's word on how it stands.
void Counters(Fixture& f, int server, uint64_t examples, uint64_t parked, uint64_t resting,
              const std::vector<uint32_t>& waits_for = {}, uint64_t committed = 0) {
  v1::ShardMessage message;
  v1::ServerCounters& counters = *message.mutable_counters();
  counters.set_examples(examples);
  counters.set_parked_pulls(parked);
  counters.set_resting(resting);
  counters.set_exchange_committed(committed);
  for (uint32_t rank : waits_for) counters.add_waits_for_ranks(rank);
  f.coordinator->OnShardMessage(ShardId(server), message, f.now);
}

void Speed(Fixture& f, uint64_t member, uint64_t step, double steps_per_second) {
  v1::RenewRequest request;
  request.set_member(member);
  request.mutable_progress()->set_step(step);
  request.mutable_progress()->set_steps_per_second(steps_per_second);
  REQUIRE(f.coordinator->Renew(request, f.now).ok());
}

TEST_CASE("status sums parked pulls and takes the server that is furthest behind",
          "[control][status]") {
  Fixture f(Fixture::Facts(2, 2));
  f.Start(2);
  Counters(f, 0, 640, 1, 0);
  Counters(f, 1, 600, 2, 1);
  const v1::JobStatus status = f.coordinator->Status(f.now);
  CHECK(status.parked_pulls() == 3);
  CHECK(status.resting() == 1);
  CHECK(status.parameter_examples() == 600);
  CHECK(!status.free_running());
  CHECK(!status.has_rate_factor());
}

TEST_CASE("what servers sent each other is summed over all that there were, as each said last",
          "[control][status]") {
  JobFacts facts = Fixture::Facts(2, 1);
  facts.replicated = true;
  facts.synchronous = false;
  Fixture f(facts);
  f.Start(1);
  const auto say = [&](int server, uint64_t bytes, bool is_closing = false) {
    v1::ShardMessage message;
    message.mutable_counters()->set_replication_payload_bytes(bytes);
    message.mutable_counters()->set_closing(is_closing);
    f.coordinator->OnShardMessage(ShardId(server), message, f.now);
    return f.coordinator->Status(f.now).replication_payload_bytes();
  };
  CHECK(say(0, 100) == 100);
  CHECK(say(1, 30) == 130);
  CHECK(say(0, 160) == 190);
  // Another process in its place counts from 0.
  f.coordinator->Detach(ShardId(1), f.servers[1].hello.life(), f.now);
  f.servers[1].hello.set_life(4711);
  REQUIRE(f.Attach(1).ok());
  CHECK(say(1, 5) == 195);
  const auto loaded = Coordinator::Load(f.coordinator->facts(), f.coordinator->Save());
  REQUIRE(loaded.ok());
  CHECK((*loaded)->Status(f.now).replication_payload_bytes() == 195);
  // The last word counts.
  CHECK(say(0, 200, /*is_closing=*/true) == 235);
}

TEST_CASE("status gives the learning rate's factor where it changes", "[control][status]") {
  JobFacts facts = Fixture::Facts(1, 1);
  v1::Schedule schedule;
  schedule.set_warmup(1000);
  facts.schedule = RateSchedule(schedule);
  facts.synchronous = false;
  Fixture f(facts);
  f.Start(1);
  // The next update brings a minibatch of 10.
  CHECK(f.coordinator->Status(f.now).rate_factor() == Approx(0.01));
  Counters(f, 0, 490, 0, 0);
  CHECK(f.coordinator->Status(f.now).rate_factor() == Approx(0.5));
  Counters(f, 0, 5000, 0, 0);
  CHECK(f.coordinator->Status(f.now).rate_factor() == 1);
  CHECK(f.coordinator->Status(f.now).free_running());
}

TEST_CASE("where all push together the factor is that of their update", "[control][status]") {
  JobFacts facts = Fixture::Facts(1, 4);
  v1::Schedule schedule;
  schedule.set_warmup(1000);
  facts.schedule = RateSchedule(schedule);
  Fixture f(facts);
  f.Start(4);
  CHECK(f.coordinator->Status(f.now).rate_factor() == Approx(0.04));
}

TEST_CASE("a speed that no worker can have is as if it were not known", "[control][status]") {
  JobFacts facts = Fixture::Facts(1, 2);
  facts.local_steps = 20;
  facts.synchronous = false;
  facts.step_budgets = true;
  Fixture f(facts);
  f.Start(2);
  Speed(f, 1, 10, 100);
  uint64_t step = 10;
  for (double speed : {HUGE_VAL, -HUGE_VAL, std::nan(""), -1.0, 1e300}) {
    INFO(speed);
    Speed(f, 2, ++step, speed);
    const v1::JobStatus status = f.coordinator->Status(f.now);
    // The other's budget is not spoiled.
    CHECK(status.members(0).step_budget() == 20);
    CHECK(status.members(1).step_budget() == 0);
    CHECK(status.members(1).progress().steps_per_second() == 0);
  }
  Speed(f, 2, ++step, 25);
  CHECK(f.coordinator->Status(f.now).members(1).step_budget() == 5);
}

TEST_CASE("status shows the steps that a slower worker is given, only where it is",
          "[control][status]") {
  for (bool budgets : {true, false}) {
    JobFacts facts = Fixture::Facts(1, 2);
    facts.local_steps = 20;
    facts.synchronous = false;
    facts.step_budgets = budgets;
    Fixture f(facts);
    f.Start(2);
    Speed(f, 1, 10, 100);
    v1::JobStatus status = f.coordinator->Status(f.now);
    CHECK(status.members(0).step_budget() == (budgets ? 20 : 0));
    // Its speed is not known.
    CHECK(status.members(1).step_budget() == 0);
    Speed(f, 2, 10, 25);
    status = f.coordinator->Status(f.now);
    CHECK(status.members(1).step_budget() == (budgets ? 5 : 0));
    CHECK(status.members(1).progress().steps_per_second() == 25);
    REQUIRE(f.Leave(2).ok());
    CHECK(f.coordinator->Status(f.now).members(1).step_budget() == 0);
  }
}

TEST_CASE("status names those whom an evaluation waits for beside those whom servers wait for",
          "[control][status]") {
  JobFacts facts = Fixture::Facts(1, 3);
  facts.synchronous = false;
  Fixture f(facts);
  f.Start(3);
  const auto waits = [&f] { return Words(f.coordinator->Status(f.now).waiting_for()); };
  CHECK(waits() == "");
  REQUIRE(f.Evaluate(1, v1::ARRIVE, 5).ok());
  CHECK(waits() == "worker 1, worker 2");
  Counters(f, 0, 0, 0, 1, {2});
  CHECK(waits() == "worker 2, worker 1");
  Counters(f, 0, 0, 0, 1);
  CHECK(Words(f.Renew(1)->waiting_for()) == "worker 1, worker 2");
  REQUIRE(f.Evaluate(2, v1::ARRIVE, 5).ok());
  CHECK(waits() == "worker 2");
  REQUIRE(f.Evaluate(3, v1::ARRIVE, 5).ok());
  // All are at work: nobody waits.
  CHECK(waits() == "");
  REQUIRE(f.Evaluate(3, v1::CALIBRATE, 5, 1, 1).ok());
  CHECK(waits() == "worker 0, worker 1");
  REQUIRE(f.Evaluate(2, v1::CALIBRATE, 5, 1, 1).ok());
  REQUIRE(f.Evaluate(1, v1::CALIBRATE, 5, 1, 1).ok());
  for (uint64_t member : {1, 2, 3}) REQUIRE(f.Evaluate(member, v1::SCORE, 5, 1, 1).ok());
  CHECK(waits() == "");
}

TEST_CASE("in lockstep those are named who hold up the server that is furthest behind",
          "[control][status]") {
  for (bool synchronous : {true, false}) {
    JobFacts facts = Fixture::Facts(2, 2);
    facts.synchronous = synchronous;
    Fixture f(facts);
    f.Start(2);
    const auto waits = [&f] { return Words(f.coordinator->Status(f.now).waiting_for()); };
    // Worker 1 has stopped between its pushes to the two; worker 0 waits for what server 1 has not got.
    Counters(f, 0, 0, 0, 0, {0, 1}, /*committed=*/5);
    Counters(f, 1, 0, 1, 0, {1}, /*committed=*/4);
    CHECK(waits() == (synchronous ? "worker 1" : "worker 0, worker 1"));
    // One that is behind and names nobody hides nobody.
    Counters(f, 1, 0, 0, 0, {}, /*committed=*/4);
    CHECK(waits() == "worker 0, worker 1");
  }
}

TEST_CASE("a lost worker is not named any more", "[control][status]") {
  JobFacts facts = Fixture::Facts(1, 2);
  facts.synchronous = false;
  Fixture f(facts);
  f.Start(2);
  REQUIRE(f.Evaluate(1, v1::ARRIVE, 5).ok());
  CHECK(Words(f.coordinator->Status(f.now).waiting_for()) == "worker 1");
  REQUIRE(f.Leave(2, "gave up").ok());
  CHECK(Words(f.coordinator->Status(f.now).waiting_for()) == "");
}

TEST_CASE(
    "a server that was silent before the start is waited for, and is there again when it speaks",
    "[control][status]") {
  Fixture f(Fixture::Facts(2, 1));
  REQUIRE(f.Attach(0).ok());
  REQUIRE(f.Attach(1).ok());
  // Its connection stands.
  for (int i = 0; i < 5; ++i) {
    f.now += absl::Seconds(3);
    Counters(f, 0, 0, 0, 0);
    f.Tick(absl::ZeroDuration());
  }
  const auto waits = [&f] { return Words(f.coordinator->Status(f.now).waiting_for()); };
  CHECK_THAT(waits(), Catch::Contains("server 1"));
  const auto joined = f.Join();
  REQUIRE(joined.ok());
  CHECK(waits() == "server 1");
  Counters(f, 1, 0, 0, 0);
  f.Tick(absl::ZeroDuration());
  f.StepAll();
  CHECK(f.Join(joined->member())->admitted());
  CHECK(waits() == "");
}

}  // namespace
}  // namespace tessera
