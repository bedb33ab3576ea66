// Servers that hold all entries, as the coordinator sees them come and go.
#include <catch2/catch.hpp>
#include <string>

#include "tests/server/control/control_fixture.h"
#include "common/base/limits.h"

namespace tessera {
namespace {

JobFacts Replicated(int sites) {
  JobFacts facts = ControlFixture::Facts(sites, sites);
  facts.epochs = 0;
  facts.steps = 1000;
  facts.batch_size = 1;
  facts.synchronous = false;
  facts.aligned = false;
  facts.replicated = true;
  return facts;
}

struct Sites : ControlFixture {
  explicit Sites(JobFacts facts) : ControlFixture(facts) { Start(facts.workers); }
  explicit Sites(int sites) : Sites(Replicated(sites)) {}

  // Another process of this rank.
  absl::Status AttachNew(int rank, uint64_t life) {
    if (rank >= static_cast<int>(servers.size())) servers.resize(rank + 1);
    servers[rank] = FakeServer();
    v1::ServerHello& hello = servers[rank].hello;
    hello.set_rank(rank);
    hello.set_job_digest("d1");
    hello.set_layout_hash(77);
    hello.set_life(life);
    hello.set_address("new:" + std::to_string(rank));
    return Attach(rank);
  }
  // The last donor that `server` was told of.
  std::string Donor(int server) {
    std::string donor;
    for (const v1::PlanMessage& message : servers[server].inbox) {
      if (!message.copy_from().empty()) donor = message.copy_from();
    }
    return donor;
  }
  void SayCopied(int server) {
    v1::ShardMessage message;
    message.mutable_counters()->set_copied(true);
    coordinator->OnShardMessage(ShardId(server), message, now);
    Tick(absl::ZeroDuration());
    StepAll();
  }
  // Ranks of the servers to push to, as a worker that knows `known` is told.
  std::string List(uint64_t member, uint64_t known = 0) {
    v1::RenewRequest request;
    request.set_member(member);
    request.set_servers_known(known);
    const auto reply = coordinator->Renew(request, now);
    REQUIRE(reply.ok());
    std::string ranks;
    for (const v1::ServerEntry& entry : reply->server_list().servers()) {
      ranks += std::to_string(entry.rank()) + (entry.life() < 1000 ? " " : "* ");
    }
    return ranks;
  }
  // All but `silent` are heard for longer than a lease.
  void Outlive(int silent) {
    for (int i = 0; i < 5; ++i) {
      now += absl::Seconds(3);
      for (size_t s = 0; s < servers.size(); ++s) {
        if (static_cast<int>(s) == silent) continue;
        coordinator->OnShardMessage(ShardId(s), v1::ShardMessage(), now);
      }
      for (const auto& [id, record] : coordinator->membership().members().all()) {
        if (IsLive(record.state)) (void)Renew(id.value());
      }
      Tick(absl::ZeroDuration());
    }
  }
};

TEST_CASE("a server that is lost takes the worker beside it along", "[control][replicas]") {
  Sites sites(3);
  CHECK(sites.List(1) == "0 1 2 ");
  CHECK(sites.List(1, 1).empty());
  sites.Outlive(1);
  sites.StepAll();
  CHECK(sites.StateOf(2) == MemberState::kLost);
  CHECK(sites.StateOf(1) == MemberState::kAdmitted);
  CHECK(sites.coordinator->outcome().ok());
  CHECK(sites.List(1, 1) == "0 2 ");
  const auto refused = sites.Renew(2);
  CHECK(std::string(refused.status().message()).find("its server was last heard") !=
        std::string::npos);
  // Nobody waits for what it would have said.
  CHECK(sites.coordinator->membership().servers().AppliedByAll() ==
        sites.coordinator->membership().generation());
  // It is refused when it comes back.
  CHECK(sites.Attach(1).code() == absl::StatusCode::kFailedPrecondition);
  CHECK(sites.coordinator->outcome().ok());
}

TEST_CASE("server 0 is one as any, and the job ends with the last of them", "[control][replicas]") {
  Sites sites(2);
  CHECK(sites.coordinator->membership().CanDoWithout(ShardId(0)));
  sites.Outlive(0);
  sites.StepAll();
  CHECK(sites.StateOf(1) == MemberState::kLost);
  CHECK(sites.StateOf(2) == MemberState::kAdmitted);
  CHECK(sites.coordinator->outcome().ok());
  CHECK_FALSE(sites.coordinator->membership().CanDoWithout(ShardId(1)));
  sites.Outlive(1);
  CHECK_FALSE(sites.coordinator->outcome().ok());
}

TEST_CASE("a server 0 that was started again copies another one, and its site begins anew",
          "[control][replicas]") {
  Sites sites(2);
  sites.coordinator->Detach(ShardId(0), sites.servers[0].hello.life(), sites.now);
  sites.servers[0].hello.set_life(4711);
  REQUIRE(sites.Attach(0).ok());
  CHECK(sites.StateOf(1) == MemberState::kLost);
  CHECK(sites.Donor(0) == "server:7001");
  sites.StepAll();
  const auto late = sites.Join();
  REQUIRE(late.ok());
  CHECK(late->rank() == 0);
  CHECK(Words(late->waiting_for()) == "server 0");
  sites.SayCopied(0);
  sites.StepAll();
  CHECK(sites.Join(late->member())->admitted());
}

TEST_CASE("a stranger's hello takes no server along while its connection is broken",
          "[control][replicas][strangers]") {
  Sites control(2);
  control.coordinator->Detach(ShardId(1), control.servers[1].hello.life(), control.now);
  v1::ServerHello stranger = control.servers[1].hello;
  stranger.set_life(12345);
  stranger.set_job_digest("another");
  CHECK(absl::IsInvalidArgument(control.coordinator->Attach(stranger, control.now)));
  const Membership& membership = control.coordinator->membership();
  CHECK_FALSE(membership.servers().at(ShardId(1)).gone);
  CHECK(membership.members().LiveAt(Rank(1)) != nullptr);
}

TEST_CASE("a worker that is lost leaves its server where it is", "[control][replicas]") {
  Sites sites(2);
  CHECK(sites.Leave(2, "gave up").ok());
  sites.StepAll();
  CHECK(sites.List(1, 0) == "0 1 ");
  const auto late = sites.Join();
  REQUIRE(late.ok());
  CHECK(late->rank() == 1);
  sites.StepAll();
  CHECK(sites.Join(late->member())->admitted());
}

TEST_CASE("a new server is pushed to first, copies, and then its worker is admitted",
          "[control][replicas]") {
  Sites sites(2);
  REQUIRE(sites.AttachNew(2, 1000).ok());
  CHECK(sites.List(1, 1) == "0 1 2* ");
  CHECK(sites.Donor(2) == "server:7000");
  sites.StepAll();
  const auto late = sites.Join();
  REQUIRE(late.ok());
  CHECK(late->rank() == 2);
  CHECK(Words(late->waiting_for()) == "server 2");
  sites.StepAll();
  CHECK_FALSE(sites.Join(late->member())->admitted());
  sites.SayCopied(2);
  const auto admitted = sites.Join(late->member());
  REQUIRE(admitted->admitted());
  CHECK(admitted->server_list().servers_size() == 3);
}

TEST_CASE("a joiner is given another donor when its donor goes", "[control][replicas]") {
  Sites sites(3);
  // The next one in the ring after rank 1 is 2.
  sites.coordinator->Detach(ShardId(1), 101, sites.now);
  REQUIRE(sites.AttachNew(1, 1000).ok());
  CHECK(sites.StateOf(2) == MemberState::kLost);
  CHECK(sites.Donor(1) == "server:7002");
  // That the other one was removed is not said to this one.
  for (const v1::PlanMessage& message : sites.servers[1].inbox) CHECK(message.refuse().empty());
  sites.Outlive(2);
  CHECK(sites.Donor(1) == "server:7000");
  CHECK(sites.List(1) == "0 1* ");
}

TEST_CASE("a worker that waits for a server nobody starts keeps no job alive",
          "[control][replicas]") {
  Sites sites(2);
  const auto waiting = sites.Join(0, 5);
  REQUIRE(waiting.ok());
  CHECK(Words(waiting->waiting_for()) == "server 5");
  CHECK(sites.Leave(1, "gave up").ok());
  CHECK(sites.Leave(2, "gave up").ok());
  CHECK_FALSE(sites.coordinator->outcome().ok());
}

TEST_CASE("a worker that waits for a copy nobody is left to give keeps no job alive",
          "[control][replicas]") {
  Sites sites(2);
  sites.coordinator->Detach(ShardId(0), sites.servers[0].hello.life(), sites.now);
  sites.servers[0].hello.set_life(4711);
  REQUIRE(sites.Attach(0).ok());
  REQUIRE(sites.Join().ok());
  sites.Tick(absl::ZeroDuration());
  CHECK(sites.coordinator->outcome().ok());
  sites.Outlive(1);
  CHECK_FALSE(sites.coordinator->outcome().ok());
}

TEST_CASE("servers that come too early or too many are refused", "[control][replicas]") {
  ControlFixture early(Replicated(2));
  FakeServer third;
  third.hello = early.servers[0].hello;
  third.hello.set_rank(2);
  early.servers.push_back(third);
  CHECK(early.Attach(2).code() == absl::StatusCode::kFailedPrecondition);
  early.servers[2].hello.set_rank(kServersMax);
  CHECK(early.Attach(2).code() == absl::StatusCode::kInvalidArgument);
  CHECK(early.coordinator->outcome().ok());
}

TEST_CASE("a server that leaves is not pushed to any more", "[control][replicas]") {
  Sites sites(2);
  v1::ShardMessage message;
  message.set_leaves(true);
  sites.coordinator->OnShardMessage(ShardId(1), message, sites.now);
  sites.Tick(absl::ZeroDuration());
  CHECK(sites.List(1, 1) == "0 ");
  CHECK(sites.StateOf(2) == MemberState::kLost);
  REQUIRE_FALSE(sites.servers[1].inbox.empty());
  CHECK(sites.servers[1].inbox.back().refuse() ==
        "server 1 was removed: its server was asked to end");
}

TEST_CASE("the others begin when worker 0 has its warm-up behind it", "[control][replicas]") {
  JobFacts facts = Replicated(2);
  facts.warmup_steps = 10;
  Sites sites(facts);
  CHECK(sites.StateOf(1) == MemberState::kAdmitted);
  CHECK(sites.StateOf(2) == MemberState::kWaiting);
  CHECK(Words(sites.Join(2)->waiting_for()) == "the warm-up of worker 0");
  (void)sites.Renew(1, 9, 9);
  sites.StepAll();
  CHECK(sites.StateOf(2) == MemberState::kWaiting);
  (void)sites.Renew(1, 10, 10);
  sites.StepAll();
  const auto second = sites.Join(2);
  REQUIRE(second->admitted());
  CHECK(second->first_step() == 10);
  CHECK(second->first_exchange() == 11);
}

TEST_CASE("worker 0 stands at the end of its warm-up until all have begun that can",
          "[control][replicas]") {
  JobFacts facts = Replicated(3);
  facts.warmup_steps = 10;
  Sites sites(facts);
  const auto begin_first = [&] {
    v1::RenewRequest request;
    request.set_member(1);
    request.mutable_progress()->set_step(10);
    request.mutable_progress()->set_exchange(10);
    request.set_ends_warm_up(true);
    const auto reply = sites.coordinator->Renew(request, sites.now);
    REQUIRE(reply.ok());
    const std::string names = Words(reply->begin_first());
    // Another coordinator hears it when it is said again.
    if (!sites.reload) CHECK(Words(sites.coordinator->Status(sites.now).waiting_for()) == names);
    sites.Tick(absl::ZeroDuration());
    sites.StepAll();
    return names;
  };
  const auto begin = [&](uint64_t member) {
    const auto admitted = sites.Join(member);
    REQUIRE(admitted->admitted());
    CHECK(admitted->first_step() == 10);
    v1::BeginEpochRequest request;
    request.set_member(member);
    request.set_step(admitted->first_step());
    REQUIRE(sites.coordinator->BeginEpoch(request, sites.now).ok());
  };
  // A server without its replica may need the next push.
  REQUIRE(sites.AttachNew(3, 1000).ok());
  sites.StepAll();
  REQUIRE(sites.Join().ok());
  CHECK(begin_first() == "worker 1, worker 2");
  CHECK(begin_first() == "worker 1, worker 2");
  SECTION("they begin") {
    begin(2);
    CHECK(begin_first() == "worker 2");
    begin(3);
    CHECK(begin_first().empty());
  }
  SECTION("one dies before it has begun") {
    begin(2);
    REQUIRE(sites.Leave(3, "died").ok());
    CHECK(begin_first().empty());
  }
  SECTION("the job is drained") {
    sites.coordinator->Drain("test", sites.now);
    begin(2);
    CHECK(begin_first().empty());
  }
}

TEST_CASE("a push that only some replicas counted is a partial one", "[control][replicas]") {
  Sites sites(3);
  REQUIRE(sites.AttachNew(3, 1000).ok());
  sites.servers[0].counted[2] = 5;
  sites.servers[1].counted[2] = 5;
  sites.servers[2].counted[2] = 4;
  // One that has no copy yet has nothing to say.
  sites.servers[3].counted[2] = 1;
  CHECK(sites.Leave(2, "gave up").ok());
  sites.StepAll();
  CHECK(sites.coordinator->membership().partial_pushes() == 1);
  sites.SayCopied(3);
  sites.servers[0].counted[3] = sites.servers[2].counted[3] = 7;
  sites.servers[3].counted[3] = 7;
  CHECK(sites.Leave(3, "gave up").ok());
  // The server that has not answered goes: the others have.
  sites.Step(0);
  sites.Step(2);
  sites.Step(3);
  CHECK(sites.coordinator->membership().partial_pushes() == 1);
  sites.Outlive(1);
  sites.StepAll();
  CHECK(sites.coordinator->membership().partial_pushes() == 1);
}

}  // namespace
}  // namespace tessera
