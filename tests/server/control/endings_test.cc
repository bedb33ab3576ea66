// How jobs end whose servers or workers are not all there.
#include <catch2/catch.hpp>

#include "nlohmann/json.hpp"
#include "tests/server/control/rejoin_fixture.h"

namespace tessera {
namespace {

// Server 1 is lost, and the job waits for it.
void LoseServer(ControlFixture* control) {
  v1::ShardMessage alive;
  alive.mutable_counters();
  for (int i = 0; i < 12; ++i) {
    control->coordinator->OnShardMessage(ShardId(0), alive, control->now);
    for (const uint64_t member : {1, 2}) REQUIRE(control->Renew(member).ok());
    control->Tick(control->coordinator->facts().lease_timeout / 10);
  }
}

TEST_CASE("a job that is to end does not wait for a lost server", "[endings]") {
  ControlFixture control(RejoinFacts());
  control.Start(2);
  MakeCheckpoint(&control);
  LoseServer(&control);
  REQUIRE(control.Renew(1)->paused());
  control.coordinator->Drain("test", control.now);
  const std::string failure = control.coordinator->Status(control.now).failure();
  CHECK_THAT(failure, Catch::Contains("server 1 was gone") && Catch::Contains("step 10"));
  CHECK_FALSE(control.coordinator->outcome().ok());
}

// How the ended job's report has it.
nlohmann::json ReportOf(const ControlFixture& control) {
  REQUIRE(control.coordinator->ended());
  return nlohmann::json::parse(control.coordinator->Status(control.now).report_json());
}

// Members 1 and 2, which are at `step`, are drained, and end.
void DrainAt(uint64_t step, ControlFixture* control, bool restarts) {
  for (FakeServer& server : control->servers) server.collecting = step + 1;
  for (const uint64_t member : {1, 2}) REQUIRE(control->Renew(member, step, step).ok());
  control->coordinator->Drain("SIGINT to tessera run", control->now);
  REQUIRE(control->Renew(1, step, step)->drain_exchange() == 0);
  control->StepAll();
  if (restarts) {
    control->Restart();
    for (const int server : {0, 1}) REQUIRE(control->Attach(server).ok());
    control->StepAll();
  }
  const uint64_t last = control->Renew(1, step, step)->drain_exchange();
  REQUIRE(last > step);
  for (const uint64_t member : {1, 2}) REQUIRE(control->Renew(member, last, last, last).ok());
  Evaluate(control, {1, 2}, last);
  for (const uint64_t member : {1, 2}) REQUIRE(control->Leave(member).ok());
  if (restarts) {
    control->Restart();
    for (const int server : {0, 1}) REQUIRE(control->Attach(server).ok());
  }
  control->StepAll();
}

JobFacts StepFacts(int64_t steps) {
  JobFacts facts = ControlFixture::Facts(2, 2);
  facts.epochs = 0;
  facts.steps = steps;
  return facts;
}

TEST_CASE("a job that is drained before its end was stopped, and says how far it was",
          "[endings]") {
  ControlFixture control(StepFacts(1000));
  control.Start(2);
  DrainAt(20, &control, GENERATE(false, true));
  const nlohmann::json report = ReportOf(control);
  CHECK(report["outcome"] == "stopped");
  CHECK(report["stop_reason"] == "SIGINT to tessera run");
  CHECK(report["steps"] > 20);
  CHECK(report["steps"] < 100);
  CHECK(report["planned_steps"] == 1000);
  CHECK(report["failure"] == "");
  CHECK(control.coordinator->outcome().ok());
}

TEST_CASE("a job that had nothing left to do when it was drained has finished", "[endings]") {
  JobFacts facts = StepFacts(1000);
  const bool has_target = GENERATE(false, true);
  if (has_target) {
    facts.target_accuracy = 0.1;
  } else {
    facts.steps = 21;
  }
  ControlFixture control(facts);
  control.Start(2);
  DrainAt(20, &control, false);
  const nlohmann::json report = ReportOf(control);
  CHECK(report["outcome"] == "finished");
  CHECK(report["stop_reason"] == "");
}

TEST_CASE("a job whose workers have all been sent away was stopped", "[endings]") {
  ControlFixture control(StepFacts(1000));
  control.Start(2);
  for (const uint64_t member : {1, 2}) {
    REQUIRE(control.Renew(member, 20, 20).ok());
    REQUIRE(control.Leave(member).ok());
  }
  control.StepAll();
  const nlohmann::json report = ReportOf(control);
  CHECK(report["outcome"] == "stopped");
  CHECK(report["stop_reason"] == "all workers have left");
}

TEST_CASE("who ends a job at once says whether it has failed", "[endings]") {
  ControlFixture control(StepFacts(1000));
  const bool has_begun = GENERATE(true, false), has_failed = GENERATE(true, false);
  if (has_begun) control.Start(2);
  if (has_failed) {
    control.coordinator->Fail("worker 1 ended with signal 9", control.now);
  } else if (has_begun) {
    control.coordinator->Stop("the disk is wanted", control.now);
  } else {
    control.coordinator->Drain("the disk is wanted", control.now);
  }
  CHECK(control.coordinator->Status(control.now).outcome() == (has_failed ? "failed" : "stopped"));
  control.Tick(absl::ZeroDuration());
  if (!control.reload) control.Restart();
  control.Tick(2 * control.coordinator->facts().lease_timeout);
  const nlohmann::json report = ReportOf(control);
  CHECK(report["outcome"] == (has_failed ? "failed" : "stopped"));
  CHECK(report["stop_reason"] == (has_failed ? "" : "the disk is wanted"));
  CHECK(report["failure"] != "");
}

TEST_CASE("a job that is drained and then cannot go on has failed", "[endings]") {
  ControlFixture control(StepFacts(1000));
  control.Start(2);
  control.coordinator->Drain("SIGTERM", control.now);
  for (const uint64_t member : {1, 2}) REQUIRE(control.Leave(member, "out of memory").ok());
  control.StepAll();
  CHECK(ReportOf(control)["outcome"] == "failed");
}

TEST_CASE("a job that is drained while it goes back begins again, and ends well", "[endings]") {
  ControlFixture control(RejoinFacts());
  control.Start(2);
  MakeCheckpoint(&control);
  ReplaceServer(&control);
  for (int times = 0; times < 2; ++times) control.coordinator->Drain("test", control.now);
  control.Tick(absl::ZeroDuration());
  CHECK(control.coordinator->Status(control.now).state() == "draining");
  CHECK(Words(control.coordinator->Status(control.now).waiting_for()) == "worker 0, worker 1");
  const bool restarts = GENERATE(false, true);
  if (restarts) {
    control.Restart();
    for (const int server : {0, 1}) REQUIRE(control.Attach(server).ok());
    control.StepAll();
  }
  for (FakeServer& server : control.servers) server.collecting = 11;
  const uint64_t first = control.Join(0, 0)->member(), second = control.Join(0, 1)->member();
  control.StepAll();
  for (const uint64_t member : {first, second}) REQUIRE(control.Join(member)->admitted());
  control.StepAll();
  const uint64_t last = control.Renew(first, 10, 10)->drain_exchange();
  REQUIRE(last > 10);
  for (const uint64_t member : {first, second}) {
    REQUIRE(control.Renew(member, last, last, last).ok());
  }
  Evaluate(&control, {first, second}, last);
  for (const uint64_t member : {first, second}) REQUIRE(control.Leave(member).ok());
  control.StepAll();
  CHECK(control.coordinator->ended());
  CHECK(control.coordinator->outcome().ok());
}

TEST_CASE("a job that is drained while it goes back ends, in time, without those who do not come",
          "[endings]") {
  ControlFixture control(RejoinFacts());
  control.Start(2);
  MakeCheckpoint(&control);
  ReplaceServer(&control);
  control.coordinator->Drain("test", control.now);
  const absl::Duration lease = control.coordinator->facts().lease_timeout;
  const auto pass = [&](double leases) {
    for (int i = 0; i < 10 * leases; ++i) {
      control.Heartbeat();
      control.Tick(lease / 10);
      control.StepAll();
    }
  };
  pass(4.5);
  CHECK(control.coordinator->outcome().ok());
  // Nobody is to blame for the time in which nobody listened.
  const bool listened = GENERATE(true, false);
  if (!listened) control.coordinator->ExtendLeases(control.now);
  pass(1);
  CHECK(control.coordinator->outcome().ok() == !listened);
  pass(5);
  CHECK_THAT(control.coordinator->Status(control.now).failure(),
             Catch::Contains("worker 0, worker 1 was not ready within 50s") &&
                 Catch::Contains("from step 10"));
  CHECK(control.coordinator->ended());
}

TEST_CASE("a job whose server is lost in the last evaluation does not wait for it", "[endings]") {
  JobFacts facts = RejoinFacts();
  facts.target_accuracy = 0.1;
  ControlFixture control(facts);
  control.Start(2);
  MakeCheckpoint(&control);
  LoseServer(&control);
  REQUIRE(control.Renew(1)->paused());
  Evaluate(&control, {1, 2}, 1000);
  control.Tick(absl::Milliseconds(1));
  CHECK_THAT(control.coordinator->Status(control.now).failure(),
             Catch::Contains("server 1 was gone"));
}

TEST_CASE("that one worker has left does not make up for the loss of all others", "[endings]") {
  ControlFixture control(ControlFixture::Facts(1, 3));
  control.Start(3);
  REQUIRE(control.Leave(1).ok());
  REQUIRE(control.Leave(2, "out of memory").ok());
  control.StepAll();
  CHECK(control.coordinator->outcome().ok());
  REQUIRE(control.Leave(3, "out of memory, too").ok());
  control.StepAll();
  CHECK_THAT(control.coordinator->Status(control.now).failure(),
             Catch::Contains("all workers are gone") && Catch::Contains("too"));
}

TEST_CASE("where members advance on their own, one that has made all its steps is enough",
          "[endings]") {
  JobFacts facts = ControlFixture::Facts(1, 2);
  facts.synchronous = facts.aligned = false;
  facts.epochs = 0;
  facts.steps = 100;
  ControlFixture control(facts);
  control.Start(2);
  REQUIRE(control.Renew(1, 100, 100).ok());
  REQUIRE(control.Leave(1).ok());
  REQUIRE(control.Leave(2, "out of memory").ok());
  control.StepAll();
  CHECK(control.coordinator->ended());
  CHECK(control.coordinator->outcome().ok());
}

TEST_CASE("a worker that waits to join when training ends is told so before the job has ended",
          "[endings]") {
  JobFacts facts = ControlFixture::Facts(1, 1);
  facts.target_accuracy = 0.1;
  ControlFixture control(facts);
  control.Start(1);
  // Its server says nothing to the proposal.
  const auto joined = control.Join(0, 1);
  REQUIRE(joined.ok());
  REQUIRE_FALSE(joined->admitted());
  REQUIRE(control.Renew(1, 1000, 1000).ok());
  Evaluate(&control, {1}, 1000);
  REQUIRE(control.Leave(1).ok());
  control.StepAll();
  CHECK_FALSE(control.coordinator->ended());
  const bool asks = GENERATE(true, false);
  if (asks) {
    CHECK_THAT(std::string(control.Join(joined->member()).status().message()),
               Catch::Contains("training ended before it could begin"));
  } else {
    control.Tick(1.1 * facts.lease_timeout);
  }
  control.StepAll();
  CHECK(control.coordinator->ended());
  CHECK(control.coordinator->outcome().ok());
}

TEST_CASE("a worker that waits to join carries on when the last one leaves", "[endings]") {
  JobFacts facts = ControlFixture::Facts(1, 1);
  facts.epochs = 100;
  ControlFixture control(facts);
  control.Start(1);
  REQUIRE(control.Renew(1, 5).ok());
  REQUIRE(control.Join().ok());
  REQUIRE(control.Leave(1).ok());
  control.StepAll();
  CHECK(control.StateOf(2) == MemberState::kAdmitted);
  CHECK(control.coordinator->outcome().ok());
  CHECK_FALSE(control.coordinator->ended());
}

TEST_CASE("a last evaluation that all have left behind is made by who comes after them",
          "[endings]") {
  JobFacts facts = ControlFixture::Facts(1, 2);
  facts.epochs = 0;
  facts.steps = 100;
  ControlFixture control(facts);
  control.Start(2);
  for (const uint64_t member : {1, 2}) REQUIRE(control.Renew(member, 50, 50).ok());
  Evaluate(&control, {1, 2}, 50);
  for (const uint64_t member : {1, 2}) REQUIRE(control.Renew(member, 100, 100).ok());
  control.servers[0].collecting = 101;
  REQUIRE(control.Evaluate(1, v1::ARRIVE, 100).ok());
  const auto spare = control.Join();
  REQUIRE(control.Leave(1, "killed").ok());
  REQUIRE(control.Leave(2, "killed").ok());
  control.StepAll();
  const auto admitted = control.Join(spare->member());
  REQUIRE(admitted->admitted());
  REQUIRE(admitted->first_step() == 100);
  control.answers.clear();
  REQUIRE(control.Evaluate(spare->member(), v1::ARRIVE, 100).ok());
  const auto answer = control.Answer(spare->member());
  REQUIRE(answer);
  CHECK_FALSE((*answer)->finished());
  CHECK((*answer)->evaluation() == 2);
}

TEST_CASE("of several workers that are gone the last one to go is named", "[endings]") {
  ControlFixture control(ControlFixture::Facts(1, 2));
  control.Start(2);
  REQUIRE(control.Leave(2, "the first").ok());
  control.StepAll();
  REQUIRE(control.Leave(1, "the second").ok());
  control.StepAll();
  CHECK(control.coordinator->Status(control.now).failure() ==
        "all workers are gone; worker 0: the second");
}

TEST_CASE("an answer to an order that nobody gave neither ends nor begins a job", "[endings]") {
  ControlFixture control(RejoinFacts());
  REQUIRE(control.Attach(0).ok());
  v1::ShardMessage message;
  message.mutable_restored()->set_generation(7);
  message.mutable_restored()->set_error("no such file");
  control.coordinator->OnShardMessage(ShardId(0), message, control.now);
  CHECK(control.coordinator->Status(control.now).failure().empty());
  message.mutable_restored()->clear_error();
  control.coordinator->OnShardMessage(ShardId(0), message, control.now);
  CHECK(control.coordinator->membership().servers().at(ShardId(0)).restored == Generation());
  control.Start(2);
  MakeCheckpoint(&control);
  message.mutable_restored()->set_error("no such file");
  control.coordinator->OnShardMessage(ShardId(1), message, control.now);
  CHECK(control.coordinator->Status(control.now).failure().empty());
}

}  // namespace
}  // namespace tessera
