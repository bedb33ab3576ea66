// Who is waited for when a job goes back to a checkpoint.
#include <catch2/catch.hpp>

#include "server/core/core_messages.h"
#include "tests/server/control/rejoin_fixture.h"

namespace tessera {
namespace {

// Servers select a core of 8 entries.
JobFacts CoreFacts() {
  JobFacts facts = RejoinFacts();
  facts.core = CoreShare{0.5, 0.25, 4, 1};
  facts.parameters = 1;
  facts.entries = 8;
  return facts;
}

TEST_CASE("a job that goes back begins with those who were its members, whatever their ranks",
          "[rejoin]") {
  ControlFixture control(RejoinFacts());
  control.Start(2);
  MakeCheckpoint(&control);
  const auto late = control.Join(0, 5);
  REQUIRE(late.ok());
  control.StepAll();
  REQUIRE(IsAdmitted(&control, late->member()));
  REQUIRE(control.Leave(2, "its memory is gone").ok());
  control.StepAll();

  ReplaceServer(&control);
  const auto first = control.Join(0, 0);
  control.StepAll();
  CHECK_FALSE(IsAdmitted(&control, first->member()));
  CHECK(Words(control.coordinator->Status(control.now).waiting_for()) == "worker 5");
  const auto second = control.Join(0, 5);
  control.StepAll();
  CHECK(IsAdmitted(&control, first->member()));
  CHECK(IsAdmitted(&control, second->member()));
  CHECK(control.servers[0].plan.members_size() == 2);
}

TEST_CASE("the job's clock goes on while a lost server is waited for", "[rejoin]") {
  ControlFixture control(RejoinFacts());
  control.Start(2);
  for (const uint64_t member : {1, 2}) {
    REQUIRE(control.coordinator->BeginTraining(MemberId(member), control.now).ok());
  }
  control.now += absl::Seconds(4);
  MakeCheckpoint(&control);
  const bool evaluates = GENERATE(false, true);
  if (evaluates) {
    for (const uint64_t member : {1, 2}) REQUIRE(control.Evaluate(member, v1::ARRIVE, 20).ok());
  }
  control.now += absl::Seconds(3);
  AttachAnew(&control);
  control.now += absl::Seconds(5);
  control.StepAll();
  const auto first = control.Join(0, 0), second = control.Join(0, 1);
  control.StepAll();
  // But where it stood for an evaluation, in which the workers were until they came again.
  CHECK(control.coordinator->Status(control.now).train_seconds() == (evaluates ? 4 : 12));
  for (const auto& joined : {first, second}) {
    REQUIRE(IsAdmitted(&control, joined->member()));
    REQUIRE(control.coordinator->BeginTraining(MemberId(joined->member()), control.now).ok());
  }
  control.now += absl::Seconds(1);
  CHECK(control.coordinator->Status(control.now).train_seconds() == (evaluates ? 5 : 13));
}

TEST_CASE("a job that goes back does not wait for ever for one that was lost with the server",
          "[rejoin]") {
  ControlFixture control(RejoinFacts());
  control.Start(2);
  MakeCheckpoint(&control);
  ReplaceServer(&control);
  const auto first = control.Join(0, 0);
  const absl::Duration lease = control.coordinator->facts().lease_timeout;
  const auto pass = [&](double leases) {
    for (int i = 0; i < 10 * leases; ++i) {
      control.Heartbeat();
      CHECK(control.Join(first->member()).ok());
      control.Tick(lease / 10);
      control.StepAll();
    }
  };
  pass(2.5);
  CHECK_FALSE(IsAdmitted(&control, first->member()));
  CHECK(Words(control.coordinator->Status(control.now).waiting_for()) == "worker 1");
  CHECK(control.coordinator->Status(control.now).members_lost() == 0);
  pass(1);
  CHECK(IsAdmitted(&control, first->member()));
  // It was one of two, and is lost.
  const v1::JobStatus status = control.coordinator->Status(control.now);
  CHECK(status.members_joined() == 2);
  CHECK(status.members_lost() == 1);
  CHECK(status.members(1).state() == "lost");
  // It may still come, as one that is late.
  REQUIRE(control.Renew(2).ok());
  CHECK(control.Renew(2)->rejoin());
  const auto second = control.Join(0, 1);
  control.StepAll();
  CHECK(IsAdmitted(&control, second->member()));
}

TEST_CASE(
    "what one that does not come back had held back at the checkpoint is counted as lost, once",
    "[rejoin]") {
  JobFacts facts = RejoinFacts();
  facts.holds_back = true;
  ControlFixture control(facts);
  control.Start(2);
  MakeCheckpoint(&control);
  const auto lost = [&] { return control.coordinator->membership().residuals_lost(); };
  const auto pass = [&](const std::vector<uint64_t>& members) {
    for (int i = 0; i < 40; ++i) {
      control.Heartbeat();
      for (const uint64_t member : members) CHECK(control.Join(member).ok());
      control.Tick(control.coordinator->facts().lease_timeout / 10);
      control.StepAll();
    }
  };
  SECTION("it is gone with the server") {
    ReplaceServer(&control);
    pass({control.Join(0, 0)->member()});
    CHECK(lost() == 1);
  }
  SECTION("it was gone before") {
    REQUIRE(control.Leave(2, "died").ok());
    CHECK(lost() == 1);
    ReplaceServer(&control);
    pass({control.Join(0, 0)->member()});
    CHECK(lost() == 1);
  }
  SECTION("all come back") {
    ReplaceServer(&control);
    const uint64_t first = control.Join(0, 0)->member();
    pass({first, control.Join(0, 1)->member()});
    CHECK(lost() == 0);
  }
}

TEST_CASE("what each had held back is its rank's when a job goes back, however many were saved",
          "[rejoin]") {
  JobFacts facts = RejoinFacts();
  facts.holds_back = true;
  ControlFixture control(facts);
  control.Start(2);
  const uint64_t late = control.Join(0, 2)->member();
  control.StepAll();
  REQUIRE(IsAdmitted(&control, late));
  control.Disk();
  control.StepAll();
  const uint64_t number = control.servers[0].order.mark().number();
  for (int server : {0, 1}) control.Part(server);
  for (uint64_t member : {uint64_t{1}, uint64_t{2}, late}) {
    REQUIRE(control.Saved(member, number, 10, 10).ok());
  }
  control.Disk();
  ReplaceServer(&control);
  // Of three one does not come back, and nobody takes what it had held back.
  const int gone = GENERATE(0, 2);
  CAPTURE(gone);
  std::vector<uint64_t> members;
  for (int rank = 0; rank < 3; ++rank) {
    if (rank != gone) members.push_back(control.Join(0, rank)->member());
  }
  for (int i = 0; i < 40; ++i) {
    control.Heartbeat();
    for (const uint64_t member : members) CHECK(control.Join(member).ok());
    control.Tick(control.coordinator->facts().lease_timeout / 10);
    control.StepAll();
  }
  CHECK(IsAdmitted(&control, members[0]));
  CHECK(control.coordinator->membership().residuals_lost() == 1);
}

TEST_CASE("a server that was only silent is taken back, and the job goes on from where it was",
          "[rejoin]") {
  ControlFixture control(RejoinFacts());
  control.Start(2);
  MakeCheckpoint(&control);
  v1::ShardMessage alive;
  alive.mutable_counters();
  for (int i = 0; i < 12; ++i) {
    control.coordinator->OnShardMessage(ShardId(0), alive, control.now);
    for (const uint64_t member : {1, 2}) REQUIRE(control.Renew(member).ok());
    control.Tick(control.coordinator->facts().lease_timeout / 10);
  }
  CHECK(Words(control.coordinator->Status(control.now).waiting_for()) == "server 1");
  CHECK(control.Renew(1)->paused());
  control.coordinator->OnShardMessage(ShardId(1), alive, control.now);
  CHECK_FALSE(control.Renew(1)->paused());
  CHECK_FALSE(control.Renew(1)->rejoin());
  CHECK(control.coordinator->Status(control.now).state() == "training");
  CHECK(control.coordinator->Status(control.now).checkpoint().rollbacks() == 0);
  // It may be lost again.
  for (int i = 0; i < 12; ++i) {
    control.coordinator->OnShardMessage(ShardId(0), alive, control.now);
    for (const uint64_t member : {1, 2}) REQUIRE(control.Renew(member).ok());
    control.Tick(control.coordinator->facts().lease_timeout / 10);
  }
  CHECK(control.Renew(1)->paused());
}

TEST_CASE("what a server had restored is not its successor's, though nobody has missed it yet",
          "[rejoin]") {
  ControlFixture control(RejoinFacts());
  control.Start(2);
  MakeCheckpoint(&control);
  ReplaceServer(&control);
  const uint64_t restored = control.servers[1].restore.generation();
  // It dies, and its connection seems to stand; the members are still on their way.
  for (int i = 0; i < 15; ++i) {
    v1::ShardMessage alive;
    alive.mutable_counters();
    control.coordinator->OnShardMessage(ShardId(0), alive, control.now);
    control.Tick(control.coordinator->facts().lease_timeout / 10);
  }
  FakeServer& server = control.servers[1];
  server.hello.set_life(4712);
  server.inbox.clear();
  server.restore.Clear();
  REQUIRE(control.Attach(1).ok());
  const auto first = control.Join(0, 0), second = control.Join(0, 1);
  CHECK(server.plan.generation() <= restored);
  for (const v1::PlanMessage& message : server.inbox) CHECK_FALSE(message.has_plan());
  CHECK_FALSE(IsAdmitted(&control, first->member()));
  control.StepAll();
  CHECK(server.restore.generation() == restored);
  CHECK(server.plan.generation() > restored);
  CHECK(IsAdmitted(&control, first->member()));
  CHECK(IsAdmitted(&control, second->member()));
}

TEST_CASE("who comes after the job went back begins behind the checkpoint, whoever was heard since",
          "[rejoin]") {
  ControlFixture control(RejoinFacts());
  control.Start(2);
  MakeCheckpoint(&control);
  ReplaceServer(&control);
  for (int rank : {0, 1}) REQUIRE(control.Join(0, rank).ok());
  control.StepAll();
  // Servers that know of no exchange since promise any.
  const auto late = control.Join(0, 5);
  REQUIRE(late.ok());
  control.StepAll();
  const auto admitted = control.Join(late->member());
  REQUIRE(admitted->admitted());
  CHECK(admitted->first_exchange() == 12);
  CHECK(admitted->first_step() == 11);
}

TEST_CASE("a server that is silent while another one is replaced is waited for until it speaks",
          "[rejoin]") {
  ControlFixture control(RejoinFacts());
  control.Start(2);
  MakeCheckpoint(&control);
  v1::ShardMessage alive;
  alive.mutable_counters();
  for (int i = 0; i < 12; ++i) {
    control.coordinator->OnShardMessage(ShardId(1), alive, control.now);
    for (const uint64_t member : {1, 2}) REQUIRE(control.Renew(member).ok());
    control.Tick(control.coordinator->facts().lease_timeout / 10);
  }
  REQUIRE(control.Renew(1)->paused());
  // What server 0 is told waits for it: its connection stands.
  AttachAnew(&control);
  while (control.Step(1)) {
  }
  const auto first = control.Join(0, 0), second = control.Join(0, 1);
  CHECK(Words(control.coordinator->Status(control.now).waiting_for()) == "server 0");
  control.StepAll();
  CHECK(IsAdmitted(&control, first->member()));
  CHECK(IsAdmitted(&control, second->member()));
}

TEST_CASE("a server that was cut off for longer than its lease comes back with what it has",
          "[rejoin]") {
  ControlFixture control(RejoinFacts());
  control.Start(2);
  MakeCheckpoint(&control);
  control.coordinator->Detach(ShardId(1), control.servers[1].hello.life(), control.now);
  v1::ShardMessage alive;
  alive.mutable_counters();
  for (int i = 0; i < 12; ++i) {
    control.coordinator->OnShardMessage(ShardId(0), alive, control.now);
    for (const uint64_t member : {1, 2}) REQUIRE(control.Renew(member).ok());
    control.Tick(control.coordinator->facts().lease_timeout / 10);
  }
  REQUIRE(control.Renew(1)->paused());
  REQUIRE(control.Attach(1).ok());
  control.coordinator->OnShardMessage(ShardId(1), alive, control.now);
  CHECK_FALSE(control.Renew(1)->paused());
  CHECK_FALSE(control.Renew(1)->rejoin());
  CHECK(control.coordinator->Status(control.now).checkpoint().rollbacks() == 0);
}

TEST_CASE("what a server says of its parameters before it has gone back counts for nothing",
          "[rejoin]") {
  ControlFixture control(CoreFacts());
  control.Start(2);
  MakeCheckpoint(&control);
  AttachAnew(&control);
  v1::ShardMessage message;
  message.mutable_counters()->set_exchange_committed(500);
  CoreReport report;
  report.core = 7;
  *message.mutable_core_report() = ToMessage(report);
  for (int i = 0; i < 2; ++i) {
    control.coordinator->OnShardMessage(ShardId(i), message, control.now);
  }
  control.Tick(absl::Milliseconds(1));
  for (const FakeServer& server : control.servers) {
    for (const v1::PlanMessage& told : server.inbox) CHECK_FALSE(told.has_core_question());
  }
  CHECK(control.coordinator->membership().servers().HighestCommitted() == Exchange(0));
  // From then on it does.
  control.StepAll();
  for (int i = 0; i < 2; ++i) {
    control.coordinator->OnShardMessage(ShardId(i), message, control.now);
  }
  control.Tick(absl::Milliseconds(1));
  CHECK(control.servers[0].inbox.back().core_question().core() == 7);
  CHECK(control.coordinator->membership().servers().HighestCommitted() == Exchange(500));
}

TEST_CASE("no core is selected once the job has failed: a server may not have its parameters",
          "[rejoin]") {
  ControlFixture control(CoreFacts());
  control.Start(2);
  MakeCheckpoint(&control);
  AttachAnew(&control);
  v1::ShardMessage message;
  message.mutable_restored()->set_generation(
      control.servers[1].inbox.back().restore().generation());
  CoreReport report;
  report.core = 7;
  *message.mutable_core_report() = ToMessage(report);
  control.coordinator->OnShardMessage(ShardId(0), message, control.now);
  message.mutable_restored()->set_error("the disk cannot be read");
  control.coordinator->OnShardMessage(ShardId(1), message, control.now);
  control.Tick(absl::Milliseconds(1));
  CHECK_THAT(control.coordinator->Status(control.now).failure(), Catch::Contains("the disk"));
  control.coordinator->OnShardMessage(ShardId(1), message, control.now);
  control.Tick(absl::Milliseconds(1));
  for (const FakeServer& server : control.servers) {
    for (const v1::PlanMessage& told : server.inbox) CHECK_FALSE(told.has_core_question());
  }
}

TEST_CASE("a worker that waits to join when the job goes back waits on, as another member",
          "[rejoin]") {
  ControlFixture control(RejoinFacts());
  control.Start(2);
  MakeCheckpoint(&control);
  const auto late = control.Join(0, 5);
  REQUIRE(late.ok());
  ReplaceServer(&control);
  const auto again = control.Join(late->member());
  REQUIRE(again.ok());
  CHECK(again->member() > late->member());
  CHECK(again->rank() == 5);
  const auto first = control.Join(0, 0), second = control.Join(0, 1);
  control.StepAll();
  for (const auto* member : {&first, &second, &again}) {
    CHECK(IsAdmitted(&control, (**member).member()));
  }
}

TEST_CASE("who waits to be admitted while the job waits for a server is told for which",
          "[rejoin]") {
  ControlFixture control(RejoinFacts());
  control.Start(2);
  MakeCheckpoint(&control);
  // The next checkpoint is proposed, and only server 1 has answered when it falls silent.
  control.Disk();
  while (control.Step(1)) {
  }
  v1::ShardMessage alive;
  alive.mutable_counters();
  for (int i = 0; i < 12; ++i) {
    control.coordinator->OnShardMessage(ShardId(0), alive, control.now);
    for (const uint64_t member : {1, 2}) REQUIRE(control.Renew(member).ok());
    control.Tick(control.coordinator->facts().lease_timeout / 10);
  }
  while (control.Step(0)) {
  }
  const auto late = control.Join();
  REQUIRE(late.ok());
  CHECK_FALSE(late->admitted());
  CHECK(Words(late->waiting_for()) == "server 1");
}

TEST_CASE("a job that goes back with nobody waits for somebody", "[rejoin]") {
  ControlFixture control(RejoinFacts());
  control.Start(2);
  MakeCheckpoint(&control);
  ReplaceServer(&control);
  for (int i = 0; i < 60; ++i) {
    control.Heartbeat();
    control.Tick(control.coordinator->facts().lease_timeout / 10);
    control.StepAll();
  }
  CHECK(control.coordinator->Status(control.now).failure().empty());
  const auto other = control.Join();
  control.Tick(absl::Milliseconds(1));
  control.StepAll();
  CHECK(IsAdmitted(&control, other->member()));
}

TEST_CASE("changes are counted on when a job goes back and selects its core anew", "[rejoin]") {
  ControlFixture control(CoreFacts());
  control.Start(2);
  MakeCheckpoint(&control);
  const uint64_t begun = control.coordinator->changes();
  for (uint64_t core = 1; core <= 30; ++core) {
    CoreReport report;
    report.core = core;
    for (int server = 0; server < 2; ++server) {
      v1::ShardMessage message;
      *message.mutable_core_report() = ToMessage(report);
      control.coordinator->OnShardMessage(ShardId(server), message, control.now);
    }
  }
  const uint64_t before = control.coordinator->changes();
  REQUIRE(before >= begun + 30);
  ReplaceServer(&control);
  CHECK(control.coordinator->changes() > before);
}

TEST_CASE("after going back, an arrival that is asked again much later opens no seat", "[rejoin]") {
  JobFacts facts = RejoinFacts();
  facts.synchronous = false;
  facts.aligned = false;
  ControlFixture control(facts);
  control.Start(2);
  for (const uint64_t member : {1, 2}) {
    REQUIRE(control.Join(member)->admitted());
    REQUIRE(control.Renew(member, 10, 10).ok());
  }
  control.Disk();
  control.StepAll();
  const uint64_t number = control.servers[0].order.mark().number();
  for (const v1::EvaluateStage stage : {v1::ARRIVE, v1::CALIBRATE, v1::SCORE}) {
    control.answers.clear();
    for (const uint64_t member : {1, 2}) REQUIRE(control.Evaluate(member, stage, 10, 1, 1).ok());
  }
  const double accuracy = (*control.Answer(1))->test_accuracy();
  CHECK(accuracy > 0);
  control.Part(0);
  control.Part(1);
  REQUIRE(control.Saved(1, number, 12, 12).ok());
  REQUIRE(control.Saved(2, number, 10, 10).ok());
  control.Disk();
  ReplaceServer(&control);
  const uint64_t ahead = control.Join(0, 0)->member(), behind = control.Join(0, 1)->member();
  control.StepAll();
  REQUIRE(IsAdmitted(&control, behind));
  REQUIRE(IsAdmitted(&control, ahead));
  // The evaluation was due there, and is in the history.
  REQUIRE(control.Evaluate(behind, v1::ARRIVE, 10).ok());
  const auto finished = control.Answer(behind);
  REQUIRE(finished);
  CHECK((*finished)->finished());
  CHECK((*finished)->evaluation() == 1);
  CHECK((*finished)->test_accuracy() == accuracy);
  // The other one comes to the next one, when the same request reaches the coordinator anew.
  REQUIRE(control.Evaluate(ahead, v1::ARRIVE, 12).ok());
  REQUIRE(control.Evaluate(behind, v1::ARRIVE, 10).ok());
  CHECK((*control.Answer(behind))->finished());
  CHECK(!control.Answer(ahead));
  REQUIRE(control.Evaluate(behind, v1::ARRIVE, 12, 0, 2).ok());
  CHECK((*control.Answer(ahead))->parts() == 2);
}

}  // namespace
}  // namespace tessera
