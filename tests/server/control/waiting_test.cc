// For whom a job waits: a lost server, and one that others wait for.
#include <catch2/catch.hpp>

#include "absl/strings/str_cat.h"
#include "server/core/core_messages.h"
#include "tests/server/control/rejoin_fixture.h"

namespace tessera {
namespace {

TEST_CASE("a job that waits for a lost server has nothing new to keep", "[rejoin]") {
  ControlFixture control(RejoinFacts());
  control.Start(2);
  MakeCheckpoint(&control);
  v1::ShardMessage alive;
  alive.mutable_counters();
  const auto pass = [&] {
    for (int i = 0; i < 12; ++i) {
      control.coordinator->OnShardMessage(ShardId(0), alive, control.now);
      for (const uint64_t member : {1, 2}) REQUIRE(control.Renew(member).ok());
      control.Tick(control.coordinator->facts().lease_timeout / 10);
    }
  };
  pass();
  REQUIRE(control.Renew(1)->paused());
  const uint64_t changes = control.coordinator->changes();
  pass();
  CHECK(control.coordinator->changes() == changes);
  AttachAnew(&control);
  CHECK(control.coordinator->changes() > changes);
}

// Before its lease is over the others stand, and their servers wait for whoever cannot push to it.
TEST_CASE("a server that is cut off is waited for at once, with its lease", "[waiting]") {
  ControlFixture control(RejoinFacts());
  control.Start(2);
  const auto waits_for = [&] {
    return Words(control.coordinator->Status(control.now).waiting_for());
  };
  v1::ShardMessage others;
  others.mutable_counters()->add_waits_for_ranks(0);
  control.coordinator->OnShardMessage(ShardId(0), others, control.now);
  control.Heartbeat();
  control.coordinator->OnShardMessage(ShardId(0), others, control.now);
  REQUIRE(waits_for() == "worker 0");
  control.coordinator->Detach(ShardId(1), control.servers[1].hello.life(), control.now);
  const absl::Duration lease = control.coordinator->facts().lease_timeout;
  control.now += lease / 10;
  control.coordinator->OnShardMessage(ShardId(0), others, control.now);
  CHECK(waits_for() == absl::StrCat("server 1 (connection lost ", absl::FormatDuration(lease / 10),
                                    " ago, lease ends in ", absl::FormatDuration(lease * 9 / 10),
                                    ")"));
  CHECK(Words(control.Renew(1)->waiting_for()) == waits_for());
  // The log, which tells what has changed, has no times.
  CHECK(control.coordinator->WaitingFor() ==
        std::vector<std::string>{"server 1 (connection lost)"});
  REQUIRE(control.Attach(1).ok());
  CHECK(waits_for() == "worker 0");
}

TEST_CASE("a server that is silent for half a lease is waited for, though its connection stands",
          "[waiting]") {
  ControlFixture control(RejoinFacts());
  control.Start(2);
  control.Heartbeat();
  const absl::Duration lease = control.coordinator->facts().lease_timeout;
  control.now += 0.6 * lease;
  v1::ShardMessage alive;
  alive.mutable_counters()->add_waits_for_ranks(0);
  control.coordinator->OnShardMessage(ShardId(0), alive, control.now);
  const std::string waits = Words(control.coordinator->Status(control.now).waiting_for());
  CHECK(waits == absl::StrCat("server 1 (last heard ", absl::FormatDuration(0.6 * lease),
                              " ago, lease ends in ", absl::FormatDuration(0.4 * lease), ")"));
}

// Where it has promised, the other server holds the exchange, and its pushes are all there.
TEST_CASE("a server that has yet to promise an exchange is waited for by name", "[waiting]") {
  JobFacts facts = ControlFixture::Facts(2, 1);
  ControlFixture control(facts);
  control.Start(1);
  const auto waits_for = [&] {
    return Words(control.coordinator->Status(control.now).waiting_for());
  };
  CHECK(waits_for().empty());
  REQUIRE(control.Join().ok());
  CHECK(waits_for() == "server 0, server 1");
  control.Step(0);
  CHECK(waits_for() == "server 1");
  control.Step(1);
  CHECK(waits_for().empty());
}

TEST_CASE("a server that has yet to count for a core is waited for by name", "[waiting]") {
  JobFacts facts = RejoinFacts();
  facts.core = CoreShare{0.5, 0.25, 4, 1};
  facts.parameters = 1;
  facts.entries = 8;
  ControlFixture control(facts);
  control.Start(2);
  const auto waits_for = [&] {
    return Words(control.coordinator->Status(control.now).waiting_for());
  };
  const auto tell = [&](int server, uint64_t committed, bool reports) {
    v1::ShardMessage message;
    message.mutable_counters()->set_exchange_committed(committed);
    if (committed == 5) {
      for (const uint32_t rank : {0, 1}) message.mutable_counters()->add_waits_for_ranks(rank);
    }
    CoreReport report;
    report.core = 1;
    if (reports) *message.mutable_core_report() = ToMessage(report);
    control.coordinator->OnShardMessage(ShardId(server), message, control.now);
  };
  tell(0, 4, false);
  tell(1, 4, false);
  CHECK(waits_for().empty());
  // Server 1 lacks the push of a worker, and is not the one to hurry.
  tell(0, 5, true);
  CHECK(waits_for().find("select") == std::string::npos);
  tell(1, 5, false);
  CHECK(waits_for() == "server 1 to select the core, worker 0, worker 1");
  tell(1, 5, true);
  CHECK(waits_for() ==
        "server 0 to select the core, server 1 to select the core, worker 0, worker 1");
}

TEST_CASE("who comes when all are lost begins where they were, not where others were before",
          "[rejoin]") {
  JobFacts facts = RejoinFacts();
  facts.synchronous = facts.aligned = false;
  ControlFixture control(facts);
  control.Start(2);
  for (const uint64_t member : {1, 2}) {
    REQUIRE(IsAdmitted(&control, member));
    REQUIRE(control.Renew(member, 10, 10).ok());
  }
  MakeCheckpoint(&control);
  for (const uint64_t member : {1, 2}) REQUIRE(control.Renew(member, 500, 500).ok());
  const uint64_t late = control.Join(0, 2)->member();
  control.StepAll();
  REQUIRE(control.Join(late)->first_step() == 500);
  REQUIRE(control.Leave(late, "died").ok());
  control.StepAll();

  ReplaceServer(&control);
  const uint64_t first = control.Join(0, 0)->member(), second = control.Join(0, 1)->member();
  control.StepAll();
  for (const uint64_t member : {first, second}) {
    REQUIRE(IsAdmitted(&control, member));
    REQUIRE(control.Renew(member, 40, 40).ok());
  }
  const uint64_t next = control.Join(0, 3)->member();
  for (const uint64_t member : {first, second}) REQUIRE(control.Leave(member, "died").ok());
  control.StepAll();
  const auto admitted = control.Join(next);
  REQUIRE(admitted->admitted());
  CHECK(admitted->first_step() == 40);
}

}  // namespace
}  // namespace tessera
