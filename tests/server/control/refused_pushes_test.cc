// What was refused or sent again has happened: it counts on when the job goes back to a checkpoint and when another
// process serves the shard, and it counts once.
#include <catch2/catch.hpp>

#include <vector>

#include "tests/server/control/rejoin_fixture.h"

namespace tessera {
namespace {

// Refused pushes, those of them that are not finite, and those that were sent again.
using Left = std::vector<uint64_t>;

// Server `i` says what its process has counted.
void Say(ControlFixture* control, int i, const Left& left) {
  v1::ShardMessage message;
  v1::ServerCounters& counters = *message.mutable_counters();
  counters.set_pushes(1000);
  counters.set_refused(left[0]);
  counters.set_refused_non_finite(left[1]);
  counters.set_duplicates(left[2]);
  control->coordinator->OnShardMessage(ShardId(i), message, control->now);
  control->Tick(absl::ZeroDuration());
}

Left Known(ControlFixture* control, int i) {
  const v1::ServerCounters counters =
      control->coordinator->Status(control->now).servers(i).counters();
  return {counters.refused(), counters.refused_non_finite(), counters.duplicates()};
}

uint64_t InReport(ControlFixture* control) {
  return control->coordinator->Status(control->now).refused_pushes();
}

TEST_CASE("what was refused or sent again counts on when the job goes back to a checkpoint",
          "[refused]") {
  ControlFixture control(RejoinFacts());
  control.Start(2);
  MakeCheckpoint(&control);
  Say(&control, 0, {40, 30, 5});
  Say(&control, 1, {7, 2, 1});
  REQUIRE(InReport(&control) == 47);
  AttachAnew(&control);
  REQUIRE(control.coordinator->Status(control.now).checkpoint().rollbacks() == 1);
  // Nothing else of what was counted holds.
  CHECK(control.coordinator->Status(control.now).servers(0).counters().pushes() == 0);
  CHECK(Known(&control, 0) == Left{40, 30, 5});
  CHECK(Known(&control, 1) == Left{7, 2, 1});
  CHECK(InReport(&control) == 47);
  control.StepAll();
  // Server 0 is the process that it was, and server 1 is another one.
  Say(&control, 0, {41, 30, 6});
  Say(&control, 1, {3, 3, 3});
  CHECK(Known(&control, 0) == Left{41, 30, 6});
  CHECK(Known(&control, 1) == Left{10, 5, 4});
  CHECK(InReport(&control) == 51);
  for (int rank : {0, 1}) REQUIRE(control.Join(0, rank).ok());
  control.StepAll();
  CHECK(InReport(&control) == 51);
  // And once more.
  control.coordinator->Detach(ShardId(1), control.servers[1].hello.life(), control.now);
  control.servers[1].hello.set_life(4712);
  control.servers[1].inbox.clear();
  REQUIRE(control.Attach(1).ok());
  control.StepAll();
  REQUIRE(control.coordinator->Status(control.now).checkpoint().rollbacks() == 2);
  Say(&control, 1, {1, 0, 0});
  CHECK(Known(&control, 1) == Left{11, 5, 4});
  CHECK(InReport(&control) == 52);
}

TEST_CASE("what a process has refused counts once where it is cut off and comes again",
          "[refused]") {
  ControlFixture control(RejoinFacts());
  control.Start(2);
  MakeCheckpoint(&control);
  Say(&control, 0, {40, 30, 5});
  SECTION("before the job goes back") {
    control.coordinator->Detach(ShardId(0), control.servers[0].hello.life(), control.now);
    AttachAnew(&control);
  }
  SECTION("while it begins again") {
    AttachAnew(&control);
    control.coordinator->Detach(ShardId(0), control.servers[0].hello.life(), control.now);
  }
  CHECK(InReport(&control) == 40);
  control.servers[0].inbox.clear();
  REQUIRE(control.Attach(0).ok());
  CHECK(InReport(&control) == 40);
  control.StepAll();
  Say(&control, 0, {42, 30, 5});
  CHECK(Known(&control, 0) == Left{42, 30, 5});
  CHECK(InReport(&control) == 42);
}

TEST_CASE("what a removed replica has refused stays in the job's sum", "[refused]") {
  JobFacts facts = ControlFixture::Facts(2, 2);
  facts.epochs = 0;
  facts.steps = 1000;
  facts.synchronous = false;
  facts.aligned = false;
  facts.replicated = true;
  ControlFixture control(facts);
  control.Start(2);
  Say(&control, 1, {7, 2, 1});
  REQUIRE(InReport(&control) == 7);
  control.coordinator->Detach(ShardId(1), control.servers[1].hello.life(), control.now);
  control.servers[1].hello.set_life(4711);
  control.servers[1].inbox.clear();
  REQUIRE(control.Attach(1).ok());
  Say(&control, 1, {2, 0, 0});
  CHECK(InReport(&control) == 9);
  v1::ShardMessage leaves;
  leaves.set_leaves(true);
  control.coordinator->OnShardMessage(ShardId(1), leaves, control.now);
  REQUIRE(control.coordinator->membership().servers().IsLost(ShardId(1)));
  CHECK(InReport(&control) == 9);
}

}  // namespace
}  // namespace tessera
