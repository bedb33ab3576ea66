// Numbers that would make a checkpoint unreadable: refused where they come in, and where one gets through no checkpoint
// is made of it.
#include <catch2/catch.hpp>

#include "server/control/saved_job.h"
#include "tests/server/control/control_fixture.h"

namespace tessera {
namespace {

using Kind = DiskTask::Kind;

// One worker, which advances on its own, and a checkpoint every 10 steps.
JobFacts Facts() {
  JobFacts facts = ControlFixture::Facts(1, 1);
  facts.epochs = 0;
  facts.steps = 1000;
  facts.synchronous = false;
  facts.aligned = false;
  facts.checkpoints = true;
  facts.checkpoint_every = 10;
  Manifest model;
  model.parameters = {{"w", 4, 2, false, 1}};
  model.model_parameters = 1;
  model.shards.resize(1);
  facts.model_manifest = std::make_shared<const Manifest>(std::move(model));
  return facts;
}

uint64_t Ordered(ControlFixture* control) {
  REQUIRE(control->Disk().kind == Kind::kBegin);
  control->StepAll();
  return control->servers[0].order.mark().number();
}

TEST_CASE("a checkpoint that nobody could read is none, and the earlier ones stay",
          "[saved_numbers]") {
  ControlFixture control(Facts());
  control.Start(1);
  REQUIRE(control.Renew(1, 10, 10).ok());
  const auto write = [&](uint64_t examples, uint64_t step) {
    const uint64_t number = Ordered(&control);
    REQUIRE(control.Saved(1, number, step, step).ok());
    v1::ShardMessage message;
    message.mutable_part()->set_number(number);
    message.mutable_part()->set_examples(examples);
    control.coordinator->OnShardMessage(ShardId(0), message, control.now);
    REQUIRE(control.Renew(1, step, step).ok());
  };
  write(100, 10);
  REQUIRE(control.Disk().kind == Kind::kCommit);
  REQUIRE(control.pruned == std::vector<uint64_t>{10});
  REQUIRE(control.Renew(1, 20, 20).ok());
  write(kSavedCountEnd, 20);
  // No commit, and no prune.
  REQUIRE(!control.tasks.empty());
  CHECK(control.Disk().kind == Kind::kAbandon);
  CHECK(control.pruned == std::vector<uint64_t>{10});
  const v1::CheckpointStatus status = control.coordinator->Status(control.now).checkpoint();
  CHECK(status.failed_count() == 1);
  CHECK(status.step() == 10);
  CHECK(status.failure() ==
        "nobody could go on from it: \"manifest\".shards[0].examples: is 72057594037927936, want "
        "below 72057594037927936");
  // The next one that can be read is whole.
  REQUIRE(control.Renew(1, 30, 30).ok());
  write(300, 30);
  CHECK(control.Disk().kind == Kind::kCommit);
}

TEST_CASE("numbers that no checkpoint can be read with are refused where they come in",
          "[saved_numbers]") {
  ControlFixture control(Facts());
  control.Start(1);
  const auto refused = [](const absl::Status& status, const std::string& words) {
    INFO(status);
    CHECK(absl::IsInvalidArgument(status));
    CHECK(std::string(status.message()) == words);
  };
  refused(control.Renew(1, kSavedNumberEnd, 1).status(),
          "renew: exchange is 549755813888, want below 549755813888");
  refused(control.Renew(1, 1, kSavedStepEnd).status(),
          "renew: step is 1099511627776, want below 1099511627776");
  refused(control.Saved(1, 1, kSavedNumberEnd, 1),
          "saved: exchange is 549755813888, want below 549755813888");
  refused(control.Evaluate(1, v1::ARRIVE, kSavedStepEnd),
          "evaluate: step is 1099511627776, want below 1099511627776");
  v1::EvaluateRequest request;
  request.set_member(1);
  request.set_round(kSavedNumberEnd);
  refused(control.coordinator->Evaluate(request, control.now),
          "evaluation 1: round is 549755813888, want one below 549755813888");
  v1::RenewRequest many;
  many.set_member(1);
  many.mutable_progress()->set_examples(kSavedCountEnd);
  refused(control.Renew(many).status(),
          "renew: examples are 72057594037927936, want below 72057594037927936");
  v1::RenewRequest late;
  late.set_member(1);
  late.mutable_progress()->set_epoch(~uint64_t{0});
  refused(control.Renew(late).status(),
          "renew: epoch is 18446744073709551615, want below 1099511627776");
  v1::BeginEpochRequest epoch;
  epoch.set_member(1);
  epoch.set_step(kSavedStepEnd);
  refused(control.coordinator->BeginEpoch(epoch, control.now).status(),
          "begin epoch: step is 1099511627776, want below 1099511627776");
  // Nothing of it was kept.
  const v1::Progress& progress =
      control.coordinator->membership().members().Find(MemberId(1))->progress;
  CHECK(progress.exchange() == 0);
  CHECK(progress.step() == 0);
  CHECK(progress.examples() == 0);
  CHECK(progress.epoch() == 0);
}

TEST_CASE("a drain that a worker cannot have heard of yet is none that it has seen",
          "[saved_numbers]") {
  ControlFixture control(Facts());
  control.Start(1);
  REQUIRE(control.Renew(1, 1, 1, /*drain_seen=*/~uint64_t{0}).ok());
  CHECK(control.coordinator->membership().members().Find(MemberId(1))->drain_seen == 0);
}

TEST_CASE("a worker of more rows than an order can number is refused", "[saved_numbers]") {
  JobFacts facts = Facts();
  facts.rows_are_local = true;
  ControlFixture control(facts);
  REQUIRE(control.Attach(0).ok());
  v1::JoinRequest wish = ControlFixture::Wish(-1);
  wish.set_rows(kMemberRowsMax + 1);
  CHECK(control.Join(wish).status().message() ==
        "join: training rows are 2147483649, want at most 2147483648");
  wish.set_rows(kMemberRowsMax);
  CHECK(control.Join(wish).ok());
}

TEST_CASE("in lockstep one member that says it is far ahead holds up no checkpoint and no joiner",
          "[saved_numbers]") {
  JobFacts facts = Facts();
  facts.workers = 2;
  facts.steps = 1'000'000;
  facts.synchronous = facts.aligned = true;
  ControlFixture control(facts);
  control.Start(2);
  // The first one was wanted before anybody lied.
  REQUIRE(Ordered(&control) == 1);
  control.Part(0);
  for (const uint64_t member : {1, 2}) REQUIRE(control.Saved(member, 1, 10, 10).ok());
  control.servers[0].collecting = 12;
  control.Heartbeat();
  REQUIRE(control.Renew(1, kSavedNumberEnd - 1, 11).ok());
  REQUIRE(control.Renew(2, 11, 11).ok());
  REQUIRE(control.Disk().kind == Kind::kCommit);
  CHECK(Ordered(&control) == 2);
  CHECK(control.servers[0].order.after_exchange() < 100);
  const uint64_t late = control.Join()->member();
  control.StepAll();
  REQUIRE(control.Join(late)->admitted());
  CHECK(control.Join(late)->first_exchange() < 100);
  // Nor does one that has left since.
  REQUIRE(control.Leave(1).ok());
  control.StepAll();
  const uint64_t later = control.Join()->member();
  control.StepAll();
  CHECK(control.Join(later)->first_exchange() < 200);
}

TEST_CASE("where members advance on their own, one that lies about its step costs no checkpoints",
          "[saved_numbers]") {
  JobFacts facts = Facts();
  facts.workers = 2;
  facts.steps = 1'000'000;
  facts.checkpoint_every = 100;
  ControlFixture control(facts);
  control.Start(2);
  uint64_t pushes = 0, step = 0, made = 0;
  const auto train = [&](uint64_t steps) {
    step += steps;
    pushes += 2 * steps;
    v1::ShardMessage message;
    message.mutable_counters()->set_pushes(pushes);
    control.coordinator->OnShardMessage(ShardId(0), message, control.now);
    // The liar says so with every renewal, and first of each file.
    REQUIRE(control.Renew(1, step, kSavedStepEnd - 1).ok());
    REQUIRE(control.Renew(2, step, step).ok());
    while (!control.tasks.empty() && control.Disk().kind == Kind::kBegin) {
      control.StepAll();
      const uint64_t number = control.servers[0].order.mark().number();
      CHECK(absl::IsInvalidArgument(control.Saved(1, number, step, kSavedStepEnd - 1)));
      for (const uint64_t member : {1, 2}) REQUIRE(control.Saved(member, number, step, step).ok());
      control.Part(0);
      made += control.Disk().kind == Kind::kCommit;
    }
  };
  for (int i = 0; i < 100; ++i) train(20);
  // 2,000 steps of each: as often as the pushes of both allow, and no less often than without the lie.
  CHECK(made >= 19);
  CHECK(made <= 2 * 20 + 1);
}

}  // namespace
}  // namespace tessera
