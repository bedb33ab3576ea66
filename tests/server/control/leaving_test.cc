// Servers that are asked to end, as the coordinator has it: with a checkpoint, with standbys, with neither.
#include <catch2/catch.hpp>
#include <map>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/server/control/rejoin_fixture.h"

namespace tessera {
namespace {

class LeavingServers : public ControlFixture {
 public:
  explicit LeavingServers(JobFacts facts = LeavingServers::Facts())
      : ControlFixture(std::move(facts)) {
    Start(2);
  }
  // Checkpoints are made when somebody asks for one.
  static JobFacts Facts() {
    JobFacts facts = RejoinFacts();
    facts.checkpoint_every = 0;
    return facts;
  }

  // Server `i` was asked to end; it says so as often as it likes.
  void Leaves(int i) {
    v1::ShardMessage message;
    message.set_leaves(true);
    coordinator->OnShardMessage(ShardId(i), message, now);
    // Collect.
    Tick(absl::ZeroDuration());
  }
  // The servers handle what they were sent. What server `i` was told of its end.
  v1::LeaveAnswer Told(int i) {
    for (size_t server = 0; server < servers.size(); ++server) {
      for (const v1::PlanMessage& message : servers[server].inbox) {
        if (message.has_leave()) told_[static_cast<int>(server)] = message.leave();
      }
    }
    StepAll();
    return told_[i];
  }
  // The checkpoint that was asked for comes to be whole.
  void MakeIt() {
    Disk();
    (void)Told(1);
    const uint64_t number = servers[0].order.mark().number();
    const uint64_t after = servers[0].order.after_exchange();
    Part(0);
    Part(1);
    for (const uint64_t member : {1, 2}) REQUIRE(Saved(member, number, after, after).ok());
    Disk();
  }
  void MakeOne() {
    REQUIRE(coordinator->Checkpoint("", now).ok());
    Tick(absl::ZeroDuration());
    MakeIt();
  }
  std::string Waits() const { return Words(coordinator->Status(now).waiting_for()); }

 private:
  std::map<int, v1::LeaveAnswer> told_;
};

TEST_CASE("a server that leaves has a checkpoint made, and nothing is folded after it",
          "[leave][rejoin]") {
  LeavingServers job;
  job.MakeOne();
  // Both collect exchange 12, which is known.
  for (FakeServer& server : job.servers) server.collecting = 12;
  job.Heartbeat();
  job.Leaves(1);
  CHECK_FALSE(job.Told(1).may_end());
  CHECK(Words(job.Told(1).waits_for()) == "the disk of checkpoint 2");
  job.Disk();
  (void)job.Told(1);
  const uint64_t after = job.servers[0].order.after_exchange();
  CHECK(after > 12);
  // What comes after it is held on both.
  for (const FakeServer& server : job.servers) CHECK(server.held.size() == 1);
  const uint64_t number = job.servers[0].order.mark().number();
  job.Part(0);
  job.Part(1);
  CHECK(Words(job.Told(1).waits_for()).find("worker 0 to write its part") != std::string::npos);
  for (const uint64_t member : {1, 2}) REQUIRE(job.Saved(member, number, after, after).ok());
  CHECK_FALSE(job.Told(1).may_end());
  job.Disk();
  const v1::LeaveAnswer told = job.Told(1);
  CHECK(told.may_end());
  CHECK(told.lost().empty());
  // At once, not a lease later.
  CHECK(job.Renew(1)->paused());
  CHECK(job.Waits() == "server 1 (asked to end; start it again)");
  for (const FakeServer& server : job.servers) CHECK(server.held.size() == 1);
  // What it says before it has gone is not taken for its return.
  job.Heartbeat();
  CHECK(job.Renew(1)->paused());
  AttachAnew(&job);
  job.StepAll();
  CHECK(job.coordinator->Status(job.now).checkpoint().rollbacks() == 1);
  CHECK(job.servers[0].restore.step() == after);
  CHECK(job.servers[1].restore.step() == after);
  for (const uint64_t member : {1, 2}) CHECK(job.Renew(member)->rejoin());
}

TEST_CASE("another process may take the place of one that left before its connection has ended",
          "[leave][rejoin]") {
  LeavingServers job;
  job.Leaves(1);
  job.MakeIt();
  REQUIRE(job.Told(1).may_end());
  job.servers[1].hello.set_life(4711);
  job.servers[1].inbox.clear();
  REQUIRE(job.Attach(1).ok());
  job.StepAll();
  CHECK(job.coordinator->Status(job.now).checkpoint().rollbacks() == 1);
  CHECK(job.coordinator->Status(job.now).failure().empty());
}

TEST_CASE("one that has not heard that it may end hears it when it connects again",
          "[leave][rejoin]") {
  LeavingServers job;
  job.Leaves(1);
  job.MakeIt();
  job.coordinator->Detach(ShardId(1), job.servers[1].hello.life(), job.now);
  job.servers[1].inbox.clear();
  REQUIRE(job.Attach(1).ok());
  CHECK(job.Told(1).may_end());
  CHECK(job.Renew(1)->paused());
}

TEST_CASE("servers that are asked one after the other share a checkpoint, and come back together",
          "[leave][rejoin]") {
  LeavingServers job;
  job.Leaves(1);
  job.Leaves(0);
  CHECK(Words(job.Told(0).waits_for()) == "server 1 to end first");
  job.MakeIt();
  CHECK(job.Told(1).may_end());
  CHECK(job.Told(0).may_end());
  CHECK(job.tasks.empty());
  CHECK(job.coordinator->Status(job.now).checkpoint().count() == 1);
  CHECK(job.Waits() ==
        "server 0 (asked to end; start it again), server 1 (asked to end; start it "
        "again)");
}

TEST_CASE("where no checkpoint can be written a server goes with what was learned since the last",
          "[leave][rejoin]") {
  LeavingServers job;
  SECTION("there is one") {
    job.MakeOne();
    job.Leaves(1);
    job.Disk(absl::UnavailableError("no space"));
    const v1::LeaveAnswer told = job.Told(1);
    CHECK(told.may_end());
    CHECK(told.lost().find("no checkpoint could be written: what was learned since step") !=
          std::string::npos);
  }
  SECTION("there is none") {
    job.Leaves(1);
    job.Disk(absl::UnavailableError("no space"));
    CHECK_FALSE(job.Told(1).may_end());
    CHECK(job.Told(1).instead().find("no earlier one") != std::string::npos);
    CHECK(job.coordinator->Status(job.now).state() == "draining");
  }
}

TEST_CASE("a job that is drained drains, whoever wants to leave, and nothing is held",
          "[leave][rejoin]") {
  LeavingServers job;
  job.Leaves(1);
  job.Disk();
  (void)job.Told(1);
  for (const FakeServer& server : job.servers) REQUIRE(server.held.size() == 1);
  job.coordinator->Drain("asked", job.now);
  job.Tick(absl::ZeroDuration());
  CHECK(job.Told(1).instead() == "the job is being drained");
  // What is held by now is the drain's.
  const uint64_t exchange = job.Renew(1)->drain_exchange();
  CHECK(exchange > 0);
  for (const uint64_t member : {1, 2}) REQUIRE(job.Renew(member, 0, 0, exchange).ok());
  job.StepAll();
  for (const FakeServer& server : job.servers) CHECK(server.held.empty());
}

TEST_CASE("without a checkpoint's folder a server that leaves drains the job", "[leave]") {
  JobFacts facts = LeavingServers::Facts();
  facts.checkpoints = false;
  LeavingServers job(facts);
  job.Leaves(1);
  CHECK(job.Told(1).instead().find("its parameters would be lost") != std::string::npos);
  CHECK(job.coordinator->Status(job.now).state() == "draining");
  CHECK(job.coordinator->Save().stop_reason().find(
            "server 1 was asked to end, and its parameters") == 0);
}

TEST_CASE("before the job has begun a server may go, and is waited for", "[leave][rejoin]") {
  ControlFixture job(RejoinFacts());
  for (const int i : {0, 1}) REQUIRE(job.Attach(i).ok());
  v1::ShardMessage message;
  message.set_leaves(true);
  job.coordinator->OnShardMessage(ShardId(1), message, job.now);
  for (int worker = 0; worker < 2; ++worker) REQUIRE(job.Join().ok());
  CHECK(Words(job.coordinator->Status(job.now).waiting_for()) == "server 1");
  AttachAnew(&job);
  job.StepAll();
  CHECK(IsAdmitted(&job, 1));
}

TEST_CASE(
    "members that are not in lockstep learn again what came after the checkpoint, and it is said",
    "[leave][rejoin]") {
  JobFacts facts = LeavingServers::Facts();
  facts.synchronous = false;
  LeavingServers job(facts);
  for (const uint64_t member : {1, 2}) REQUIRE(IsAdmitted(&job, member));
  job.Leaves(1);
  job.Disk();
  (void)job.Told(1);
  const uint64_t number = job.servers[0].order.mark().number();
  job.Part(0);
  job.Part(1);
  for (const uint64_t member : {1, 2}) REQUIRE(job.Saved(member, number, 4, 4).ok());
  job.Disk();
  CHECK(job.Told(1).may_end());
  CHECK(job.Told(1).lost().find("since step 4 is learned again") != std::string::npos);
}

}  // namespace
}  // namespace tessera
