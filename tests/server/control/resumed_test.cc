// Jobs that go on from a checkpoint whose exchanges were not as long as theirs are.
#include <catch2/catch.hpp>
#include <memory>
#include <utility>

#include "server/control/exchange_steps.h"
#include "server/shard/checkpoint_mark.h"
#include "tests/server/control/rejoin_fixture.h"

namespace tessera {
namespace {

// Begun from the end of a job of `step` steps and `exchange` exchanges.
JobFacts Resumed(uint64_t exchange, uint64_t step, int64_t local_steps, int64_t every) {
  JobFacts facts = RejoinFacts();
  facts.local_steps = local_steps;
  facts.checkpoint_every = every;
  facts.steps = 4000;
  auto state = std::make_shared<SavedState>();
  state->manifest = *facts.model_manifest;
  state->manifest.exchange = exchange;
  state->manifest.step = step;
  state->manifest.generation = 3;
  for (int s = 0; s < 2; ++s) state->manifest.files.push_back({ShardFileName(s, 2), 1, {}});
  state->manifest.coordinator = FormatSavedJob(state->job);
  state->from_restore = true;
  facts.restored = std::move(state);
  return facts;
}

// Everybody is at this exchange and step.
void Reach(ControlFixture* control, uint64_t exchange, uint64_t step) {
  for (FakeServer& server : control->servers) server.collecting = exchange + 1;
  control->Heartbeat();
  for (const uint64_t member : {1, 2}) REQUIRE(control->Renew(member, exchange, step).ok());
}

TEST_CASE("exchanges count from where the job goes on", "[resumed]") {
  const ExchangeSteps begun(20, nullptr);
  CHECK(begun.After(Exchange(3)) == 60);
  CHECK(begun.Reaching(60) == Exchange(3));
  CHECK(begun.Reaching(61) == Exchange(4));
  Manifest manifest;
  manifest.exchange = 3;
  manifest.step = 50;
  const ExchangeSteps resumed(20, &manifest);
  CHECK(resumed.After(Exchange(2)) == 50);
  CHECK(resumed.After(Exchange(3)) == 50);
  CHECK(resumed.After(Exchange(5)) == 90);
  CHECK(resumed.Reaching(10) == Exchange(3));
  CHECK(resumed.Reaching(50) == Exchange(3));
  CHECK(resumed.Reaching(51) == Exchange(4));
  CHECK(resumed.Reaching(90) == Exchange(5));
  // Of one of those that advance on their own.
  CHECK(ExchangeSteps(20, 9, 360).After(Exchange(12)) == 420);
}

TEST_CASE("who comes late to a job that goes on after a short interval begins where the others are",
          "[resumed]") {
  ControlFixture control(Resumed(3, 50, 20, 0));
  control.Start(2);
  const auto first = control.Join(1);
  REQUIRE(first->admitted());
  CHECK(first->first_exchange() == 4);
  CHECK(first->first_step() == 50);
  Reach(&control, 5, 90);
  const auto late = control.Join();
  control.StepAll();
  const auto admitted = control.Join(late->member());
  REQUIRE(admitted->admitted());
  CHECK(admitted->first_exchange() == 7);
  CHECK(admitted->first_step() == 110);
}

TEST_CASE("a job that goes on with other local steps makes checkpoints when they are due",
          "[resumed]") {
  // 100 exchanges of 20 steps are behind it.
  const int64_t local_steps = GENERATE(as<int64_t>(), 10, 20, 40);
  CAPTURE(local_steps);
  ControlFixture control(Resumed(100, 2000, local_steps, 500));
  control.Start(2);
  REQUIRE(control.tasks.size() == 1);
  REQUIRE(control.Disk().kind == DiskTask::Kind::kBegin);
  control.StepAll();
  const uint64_t after = control.servers[0].order.after_exchange();
  CHECK(after == 100 + (500 + local_steps - 1) / local_steps);
  // One that cannot be made is none; the next one is due an interval later, and the job has an end.
  control.Part(0, "disk full");
  uint64_t exchange = after;
  for (const uint64_t due : {3000, 3500, 4000}) {
    Reach(&control, exchange, 2000 + (exchange - 100) * local_steps);
    control.StepAll();
    while (!control.tasks.empty()) control.Disk();
    control.StepAll();
    exchange = control.servers[0].order.after_exchange();
    CHECK(exchange == 100 + (due - 2000 + local_steps - 1) / local_steps);
    control.Part(0, "disk full");
  }
  while (!control.tasks.empty()) control.Disk();
  CHECK(control.coordinator->Status(control.now).checkpoint().open_number() == 0);
}

TEST_CASE("where members advance on their own, one that is late has the clock of the slowest",
          "[resumed]") {
  JobFacts facts = Resumed(0, 400, 10, 0);
  facts.synchronous = facts.aligned = false;
  auto state = std::make_shared<SavedState>(*facts.restored);
  // Exchanges of 40 steps.
  state->manifest.members = {{1, 0, 10, 400}, {2, 1, 9, 360}};
  for (int w = 0; w < 2; ++w) state->manifest.files.push_back({WorkerFileName(w), 1, {}});
  facts.restored = std::move(state);
  ControlFixture control(facts);
  control.Start(2);
  for (const uint64_t member : {1, 2}) REQUIRE(control.Join(member)->admitted());
  REQUIRE(control.Renew(1, 14, 440).ok());
  REQUIRE(control.Renew(2, 12, 390).ok());
  const auto late = control.Join();
  control.StepAll();
  const auto admitted = control.Join(late->member());
  REQUIRE(admitted->admitted());
  CHECK(admitted->first_step() == 390);
  CHECK(admitted->first_exchange() == 13);
}

// ssp: exchanges tell their steps, and members are not in lockstep.
JobFacts ClockFacts() {
  JobFacts facts = RejoinFacts();
  facts.synchronous = false;
  facts.aligned = true;
  facts.local_steps = 10;
  return facts;
}

TEST_CASE("where exchanges tell their steps without lockstep, one that is late has the slowest's",
          "[resumed]") {
  JobFacts facts = ClockFacts();
  auto state = std::make_shared<SavedState>(*Resumed(0, 620, 10, 0).restored);
  state->manifest.members = {{1, 0, 62, 620}, {2, 1, 60, 600}};
  for (int w = 0; w < 2; ++w) state->manifest.files.push_back({WorkerFileName(w), 1, {}});
  facts.restored = std::move(state);
  ControlFixture control(facts);
  control.Start(2);
  for (const uint64_t member : {1, 2}) REQUIRE(control.Join(member)->admitted());
  REQUIRE(control.Renew(1, 64, 640).ok());
  REQUIRE(control.Renew(2, 62, 620).ok());
  const auto late = control.Join();
  control.StepAll();
  const auto admitted = control.Join(late->member());
  REQUIRE(admitted->admitted());
  CHECK(admitted->first_exchange() == 63);
  CHECK(admitted->first_step() == 620);
}

TEST_CASE("who is late to a job that goes on evaluates first where that is yet to be made",
          "[resumed]") {
  // Epochs of 100 steps: worker 0 is at the end of the fourth, maybe before its evaluation, worker 1 close to it.
  const bool is_due = GENERATE(true, false);
  JobFacts facts = ClockFacts();
  facts.evaluate_every = 2;
  auto state = std::make_shared<SavedState>(*Resumed(0, 400, 10, 0).restored);
  state->manifest.members = {{1, 0, 40, 400}, {2, 1, 39, 390}};
  for (int w = 0; w < 2; ++w) state->manifest.files.push_back({WorkerFileName(w), 1, {}});
  state->job.evaluation_due = is_due;
  state->job.cuts = {{3, 300, 100, 2000, {0, 1}}};
  state->manifest.coordinator = FormatSavedJob(state->job);
  facts.restored = std::move(state);
  ControlFixture control(facts);
  control.Start(2);
  for (const uint64_t member : {1, 2}) {
    CHECK(!control.Join(member)->evaluation_due());
    CHECK(control.Join(member)->resume().evaluation_due() == is_due);
    REQUIRE(control.Renew(member, 40, 400).ok());
  }
  const auto late = control.Join();
  control.StepAll();
  const auto admitted = control.Join(late->member());
  REQUIRE(admitted->admitted());
  CHECK(admitted->first_step() == 400);
  CHECK(admitted->evaluation_due() == is_due);
}

TEST_CASE("so it does after such a job went back", "[resumed]") {
  JobFacts facts = ClockFacts();
  facts.checkpoint_every = 100;
  ControlFixture control(facts);
  control.Start(2);
  for (const uint64_t member : {1, 2}) {
    REQUIRE(control.Join(member)->admitted());
    REQUIRE(control.Renew(member, 10, 100).ok());
  }
  control.Disk();
  control.StepAll();
  const uint64_t number = control.servers[0].order.mark().number();
  for (const int server : {0, 1}) control.Part(server);
  REQUIRE(control.Saved(1, number, 12, 120).ok());
  REQUIRE(control.Saved(2, number, 10, 100).ok());
  control.Disk();
  // Another process of server 1.
  control.coordinator->Detach(ShardId(1), control.servers[1].hello.life(), control.now);
  control.servers[1].hello.set_life(4711);
  control.servers[1].inbox.clear();
  REQUIRE(control.Attach(1).ok());
  control.StepAll();
  for (const int rank : {0, 1}) REQUIRE(control.Join(0, rank).ok());
  control.StepAll();
  const auto late = control.Join();
  control.StepAll();
  const auto admitted = control.Join(late->member());
  REQUIRE(admitted->admitted());
  CHECK(admitted->first_exchange() == 11);
  CHECK(admitted->first_step() == 100);
}

TEST_CASE("what was held back is lost to nobody where it is dealt to other ranks", "[resumed]") {
  JobFacts facts = Resumed(3, 50, 20, 0);
  facts.holds_back = true;
  auto state = std::make_shared<SavedState>(*facts.restored);
  // Rank 1 was gone. As many workers go on, as ranks 0 and 1.
  state->manifest.members = {{1, 0, 3, 50}, {3, 2, 3, 50}};
  for (const int rank : {0, 2}) state->manifest.files.push_back({WorkerFileName(rank), 1, {}});
  facts.restored = std::move(state);
  ControlFixture control(facts);
  control.Start(2);
  REQUIRE(control.Join(1)->admitted());
  CHECK(control.coordinator->membership().residuals_lost() == 0);
}

}  // namespace
}  // namespace tessera
