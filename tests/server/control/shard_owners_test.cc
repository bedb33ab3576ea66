#include "server/control/members/shard_owners.h"

#include <map>
#include <string>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

namespace tessera {
namespace {

// Hosts that do as they are told.
class Hosts {
 public:
  // `addresses`: of each rank, where they are not on machines of their own.
  explicit Hosts(int count, std::vector<std::string> addresses = {})
      : addresses_(std::move(addresses)), facts_(FactsOf(count)), owners(facts_) {
    for (int rank = 0; rank < count; ++rank) REQUIRE(Attach(rank).ok());
    Obey();
  }

  static JobFacts FactsOf(int count) {
    JobFacts facts;
    facts.servers = count;
    facts.digest = "d";
    facts.standbys = true;
    facts.lease_timeout = absl::Seconds(4);
    return facts;
  }

  absl::Status Attach(uint32_t rank) {
    v1::HostHello hello;
    hello.set_rank(rank);
    hello.set_job_digest("d");
    hello.set_life(lives_[rank] == 0 ? ++next_life_ : lives_[rank]);
    hello.set_address(addresses_.empty() ? Address(rank) : addresses_[rank]);
    const absl::Status status = owners.Attach(hello, now);
    if (status.ok()) lives_[rank] = hello.life();
    return status;
  }
  static std::string Address(uint32_t rank) { return "host-" + std::to_string(rank); }

  void Kill(uint32_t rank) {
    owners.Detach(rank, lives_[rank], now);
    lives_[rank] = 0;
    orders.erase(rank);
  }

  // Everybody hears its orders and says what it does, until nothing changes. Frozen ones do not.
  void Obey() {
    for (int round = 0; round < 8; ++round) {
      for (HostOutgoing& out : owners.TakeOutbox()) orders[out.host] = std::move(out.order);
      for (const auto& [rank, order] : orders) {
        if (lives_[rank] == 0 || frozen == static_cast<int>(rank)) continue;
        v1::HostMessage message;
        for (const v1::ShardOrder& role : order.shards()) {
          if (role.role() == v1::FOLLOW) {
            *message.add_follows() = role;
          } else if (!role.standby().empty()) {
            v1::LeaderReport& report = *message.add_leads();
            report.set_shard(role.shard());
            report.set_term(role.term());
            report.set_in_sync(true);
          }
        }
        owners.OnMessage(rank, message, now);
      }
    }
  }

  void Pass(absl::Duration time) {
    for (const absl::Time end = now + time; now < end; now += absl::Milliseconds(100)) {
      Obey();
      owners.Tick(now);
    }
    Obey();
  }

  const ShardOwnership& shard(int s) const { return owners.shards()[s]; }

  const std::vector<std::string> addresses_;
  std::map<uint32_t, uint64_t> lives_;
  uint64_t next_life_ = 0;
  absl::Time now = absl::UnixEpoch();
  const JobFacts facts_;
  ShardOwners owners;
  std::map<uint32_t, v1::HostOrder> orders;
  int frozen = -1;
};

TEST_CASE("each host leads its shard, and the next one follows it", "[standby][control]") {
  Hosts hosts(3);
  CHECK(hosts.owners.AllProtected());
  for (int s = 0; s < 3; ++s) {
    CHECK(hosts.shard(s).leader == s);
    CHECK(hosts.shard(s).standby == (s + 1) % 3);
    CHECK(hosts.owners.Leads(ShardId(s), hosts.shard(s).lead_term, Hosts::Address(s)));
    CHECK_FALSE(hosts.owners.Leads(ShardId(s), hosts.shard(s).lead_term, Hosts::Address(s + 1)));
  }
}

TEST_CASE("a standby is on another machine than its leader, where there is one",
          "[standby][control]") {
  Hosts hosts(4, {"10.0.0.1:7000", "10.0.0.1:7001", "10.0.0.2:7000", "10.0.0.2:7001"});
  hosts.owners.OnStarted();
  CHECK(hosts.shard(0).standby == 2u);
  CHECK(hosts.shard(1).standby == 2u);
  CHECK(hosts.shard(2).standby == 0u);
  CHECK(hosts.shard(3).standby == 0u);
  // A machine is lost with both of its servers: nothing is lost with it.
  hosts.Kill(0);
  hosts.Kill(1);
  hosts.Pass(absl::Seconds(1));
  for (const auto& loss : hosts.owners.TakeLosses()) CHECK(loss.taken_over);
  for (int s = 0; s < 4; ++s) hosts.owners.OnLed(ShardId(s), hosts.now);
  hosts.Pass(absl::Seconds(2));
  // The other one has both now.
  CHECK(hosts.owners.AllProtected());
  for (int s = 0; s < 4; ++s) CHECK(hosts.shard(s).standby >= 2u);
}

TEST_CASE("a standby takes over when the connection has ended for a moment, and is followed anew",
          "[standby][control]") {
  Hosts hosts(3);
  hosts.owners.OnStarted();
  const uint64_t term = hosts.shard(1).term, lead_term = hosts.shard(1).lead_term;
  hosts.Kill(1);
  hosts.Pass(absl::Milliseconds(400));
  CHECK(hosts.shard(1).leader == 1u);
  hosts.Pass(absl::Milliseconds(400));
  CHECK(hosts.shard(1).leader == 2u);
  CHECK(hosts.shard(1).term > term);
  CHECK(hosts.shard(1).lead_term > lead_term);
  CHECK_FALSE(hosts.shard(1).in_sync);
  // Shard 0 had its standby there.
  CHECK(hosts.shard(0).standby == 2u);
  const auto losses = hosts.owners.TakeLosses();
  REQUIRE(losses.size() == 1);
  CHECK(losses[0].shard == ShardId(1));
  CHECK(losses[0].taken_over);
  // No standby before it leads: it has enough to do.
  CHECK_FALSE(hosts.shard(1).standby.has_value());
  hosts.owners.OnLed(ShardId(1), hosts.now);
  hosts.Pass(absl::Seconds(2));
  CHECK(hosts.shard(1).standby == 0u);
  CHECK(hosts.owners.AllProtected());
  // The dead one comes back and has nothing to lead; the next loss falls on it.
  REQUIRE(hosts.Attach(1).ok());
  hosts.Pass(absl::Seconds(1));
  CHECK(hosts.shard(1).leader == 2u);
  hosts.Kill(2);
  hosts.Pass(absl::Seconds(1));
  CHECK(hosts.shard(1).leader == 0u);
  hosts.owners.OnLed(ShardId(1), hosts.now);
  hosts.owners.OnLed(ShardId(2), hosts.now);
  hosts.Pass(absl::Seconds(2));
  CHECK(hosts.owners.AllProtected());
  CHECK(hosts.shard(1).standby == 1u);
}

TEST_CASE("a host that is lost before the start does not hold it up", "[standby][control]") {
  Hosts hosts(3);
  hosts.Kill(1);
  hosts.Pass(absl::Seconds(2));
  CHECK(hosts.shard(1).leader == 2u);
  CHECK(hosts.owners.MayStart());
  // With one host left there is nobody to wait for.
  hosts.Kill(2);
  hosts.Pass(absl::Seconds(2));
  CHECK_FALSE(hosts.owners.AllProtected());
  CHECK(hosts.owners.MayStart());
}

TEST_CASE("a shard that is lost before the start goes back to its own host, which has come again",
          "[standby][control]") {
  Hosts hosts(3);
  hosts.Kill(1);
  hosts.Pass(absl::Seconds(2));
  REQUIRE(hosts.shard(1).leader == 2u);
  REQUIRE(hosts.Attach(1).ok());
  // Its new leader dies before anybody has a copy.
  v1::HostMessage broken;
  v1::LeaderReport& report = *broken.add_leads();
  report.set_shard(1);
  report.set_term(hosts.shard(1).term);
  report.set_broken("reset");
  hosts.owners.OnMessage(2, broken, hosts.now);
  hosts.owners.TakeOutbox();
  hosts.Kill(2);
  hosts.now += absl::Milliseconds(600);
  hosts.owners.Tick(hosts.now);
  CHECK(hosts.shard(1).leader == 1u);
  CHECK(hosts.shard(1).lead_term == hosts.shard(1).term);
}

TEST_CASE("a connection that breaks and is made anew costs nothing", "[standby][control]") {
  Hosts hosts(2);
  hosts.owners.OnStarted();
  const uint64_t term = hosts.shard(1).term;
  hosts.owners.Detach(1, hosts.lives_[1], hosts.now);
  hosts.now += absl::Milliseconds(300);
  hosts.owners.Tick(hosts.now);
  REQUIRE(hosts.Attach(1).ok());
  hosts.Pass(absl::Seconds(2));
  CHECK(hosts.shard(1).term == term);
  CHECK(hosts.owners.TakeLosses().empty());
}

TEST_CASE("one that was silent for a lease is told to end, and may not come back",
          "[standby][control]") {
  Hosts hosts(2);
  hosts.owners.OnStarted();
  hosts.frozen = 1;
  hosts.Pass(absl::Seconds(3));
  CHECK(hosts.shard(1).leader == 1u);
  hosts.Pass(absl::Seconds(2));
  CHECK(hosts.shard(1).leader == 0u);
  CHECK_FALSE(hosts.orders[1].refuse().empty());
  CHECK(absl::IsFailedPrecondition(hosts.Attach(1)));
  // With one host left there is nobody to follow.
  hosts.owners.OnLed(ShardId(1), hosts.now);
  hosts.Pass(absl::Seconds(2));
  CHECK_FALSE(hosts.shard(0).standby.has_value());
  CHECK_FALSE(hosts.shard(1).standby.has_value());
  hosts.lives_[1] = 0;
  hosts.frozen = -1;
  REQUIRE(hosts.Attach(1).ok());
  hosts.Pass(absl::Seconds(1));
  CHECK(hosts.owners.AllProtected());
  CHECK(hosts.shard(1).standby == 1u);
}

TEST_CASE("a shard whose standby had not everything is lost", "[standby][control]") {
  Hosts hosts(3);
  hosts.owners.OnStarted();
  hosts.Kill(2);
  hosts.Pass(absl::Seconds(1));
  hosts.owners.OnLed(ShardId(2), hosts.now);
  // Shard 1 lost its standby. The new one is told, but has yet to copy when the leader dies.
  hosts.owners.TakeLosses();
  v1::HostMessage broken;
  v1::LeaderReport& report = *broken.add_leads();
  report.set_shard(1);
  report.set_term(hosts.shard(1).term);
  report.set_broken("reset");
  hosts.owners.OnMessage(1, broken, hosts.now);
  CHECK_FALSE(hosts.shard(1).in_sync);
  CHECK_FALSE(hosts.shard(1).standby.has_value());
  hosts.Kill(1);
  hosts.Pass(absl::Seconds(1));
  CHECK_FALSE(hosts.shard(1).leader.has_value());
  const auto losses = hosts.owners.TakeLosses();
  REQUIRE(losses.size() == 1);
  CHECK_FALSE(losses[0].taken_over);
  // Whoever comes anew leads it, with nothing in it.
  REQUIRE(hosts.Attach(2).ok());
  CHECK(hosts.shard(1).leader == 2u);
}

TEST_CASE("a shard that was lost is led by one that is there once nobody has come for it",
          "[standby][control]") {
  // Servers 1 and 2 go at once: with them shard 1, and its standby.
  Hosts hosts(4);
  hosts.owners.OnStarted();
  hosts.Kill(1);
  hosts.Kill(2);
  hosts.Pass(absl::Seconds(1));
  REQUIRE_FALSE(hosts.shard(1).leader.has_value());
  CHECK(hosts.shard(2).leader == 3u);
  const absl::Duration patience = ShardOwners::kPatienceLeases * hosts.facts_.lease_timeout;
  hosts.Pass(patience - absl::Seconds(1));
  CHECK_FALSE(hosts.shard(1).leader.has_value());
  const uint64_t term = hosts.shard(1).term;
  hosts.Pass(absl::Seconds(1));
  // Server 3 leads two by now.
  CHECK(hosts.shard(1).leader == 0u);
  CHECK(hosts.shard(1).lead_term > term);
  hosts.owners.OnLed(ShardId(2), hosts.now);
  hosts.Pass(absl::Seconds(2));
  CHECK(hosts.owners.AllProtected());
  // One that comes after that has nothing to lead.
  REQUIRE(hosts.Attach(1).ok());
  hosts.Pass(absl::Seconds(1));
  CHECK(hosts.shard(1).leader == 0u);
}

TEST_CASE(
    "one that is started again in time leads what was lost, and one without connection leads "
    "nothing",
    "[standby][control]") {
  Hosts hosts(3);
  hosts.owners.OnStarted();
  hosts.Kill(1);
  hosts.Kill(2);
  hosts.Pass(absl::Seconds(5));
  REQUIRE_FALSE(hosts.shard(1).leader.has_value());
  SECTION("in time") {
    REQUIRE(hosts.Attach(2).ok());
    CHECK(hosts.shard(1).leader == 2u);
    hosts.Pass(absl::Seconds(20));
    CHECK(hosts.shard(1).leader == 2u);
  }
  SECTION("nobody is there") {
    hosts.Kill(0);
    hosts.Pass(absl::Seconds(20));
    CHECK_FALSE(hosts.shard(1).leader.has_value());
    REQUIRE(hosts.Attach(0).ok());
    for (int s = 0; s < 3; ++s) CHECK(hosts.shard(s).leader == 0u);
  }
}

TEST_CASE("a leader is told of its standby once that takes the log", "[standby][control]") {
  Hosts hosts(2);
  hosts.owners.OnStarted();
  hosts.Kill(1);
  hosts.Pass(absl::Seconds(1));
  hosts.owners.OnLed(ShardId(1), hosts.now);
  REQUIRE(hosts.Attach(1).ok());
  hosts.frozen = 1;
  hosts.Pass(absl::Seconds(1));
  for (const v1::ShardOrder& role : hosts.orders[0].shards()) CHECK(role.standby().empty());
  hosts.frozen = -1;
  hosts.Pass(absl::Seconds(1));
  for (const v1::ShardOrder& role : hosts.orders[0].shards()) CHECK(role.standby() == "host-1");
}

TEST_CASE("a host that leaves hands over what it leads, and others follow what it followed",
          "[standby][control][leave]") {
  Hosts hosts(3);
  hosts.owners.OnStarted();
  const uint64_t lead_term = hosts.shard(1).lead_term;
  hosts.owners.SetLeaving(1, hosts.now);
  // Shard 0 has no standby while the next one copies it.
  CHECK(hosts.shard(0).standby == 2u);
  CHECK(hosts.owners.LeavingWaitsFor(hosts.now) == std::vector<std::string>{"standby of shard 0"});
  CHECK(hosts.shard(1).leader == 1u);
  hosts.Obey();
  REQUIRE(hosts.owners.LeavingWaitsFor(hosts.now).empty());
  CHECK(hosts.owners.AllProtected());
  hosts.owners.LetGo(1, hosts.now);
  hosts.Obey();
  // Nobody had to notice.
  CHECK(hosts.shard(1).leader == 2u);
  CHECK(hosts.shard(1).lead_term > lead_term);
  CHECK(hosts.orders[1].leave().may_end());
  CHECK(hosts.orders[1].refuse().empty());
  const auto losses = hosts.owners.TakeLosses();
  REQUIRE(losses.size() == 1);
  CHECK(losses[0].taken_over);
  CHECK(hosts.owners.IsTakingOver());
  hosts.owners.OnLed(ShardId(1), hosts.now);
  CHECK_FALSE(hosts.owners.IsTakingOver());
  hosts.Pass(absl::Seconds(1));
  CHECK(hosts.owners.AllProtected());
  // It is no member under its old life.
  CHECK(absl::IsFailedPrecondition(hosts.Attach(1)));
}

TEST_CASE("each host in turn leaves and comes back, and every shard is led all the while",
          "[standby][control][leave]") {
  Hosts hosts(3);
  hosts.owners.OnStarted();
  for (uint32_t rank : {0, 1, 2, 0}) {
    hosts.owners.SetLeaving(rank, hosts.now);
    for (int i = 0; i < 40 && !hosts.owners.LeavingWaitsFor(hosts.now).empty(); ++i) {
      hosts.Pass(absl::Milliseconds(100));
    }
    REQUIRE(hosts.owners.LeavingWaitsFor(hosts.now).empty());
    hosts.owners.LetGo(rank, hosts.now);
    hosts.Obey();
    for (const ShardOwners::Loss& loss : hosts.owners.TakeLosses()) {
      CHECK(loss.taken_over);
      hosts.owners.OnLed(loss.shard, hosts.now);
    }
    hosts.lives_[rank] = 0;
    REQUIRE(hosts.Attach(rank).ok());
  }
  hosts.Pass(absl::Seconds(2));
  CHECK(hosts.owners.AllProtected());
  for (int s = 0; s < 3; ++s) CHECK(hosts.shard(s).leader.has_value());
}

TEST_CASE("a host that leads what no other can take has to stay, and says what it lacks",
          "[standby][control][leave]") {
  Hosts hosts(2);
  hosts.owners.OnStarted();
  hosts.Kill(1);
  hosts.Pass(absl::Seconds(1));
  hosts.owners.TakeLosses();
  hosts.owners.OnLed(ShardId(1), hosts.now);
  hosts.owners.SetLeaving(0, hosts.now);
  CHECK(hosts.owners.LeavesNobodyBehind());
  CHECK(hosts.owners.LeavingWaitsFor(hosts.now) ==
        std::vector<std::string>{"another server to take over shard 0",
                                 "another server to take over shard 1"});
  // One that comes takes both, once it has them.
  REQUIRE(hosts.Attach(1).ok());
  CHECK_FALSE(hosts.owners.LeavesNobodyBehind());
  CHECK(hosts.owners.LeavingWaitsFor(hosts.now).size() == 2);
  hosts.Obey();
  CHECK(hosts.owners.LeavingWaitsFor(hosts.now).empty());
}

TEST_CASE("what a host follows and nobody else can is followed until it goes",
          "[standby][control][leave]") {
  Hosts hosts(2);
  hosts.owners.OnStarted();
  hosts.owners.SetLeaving(1, hosts.now);
  CHECK(hosts.shard(0).standby == 1u);
  CHECK(hosts.shard(0).in_sync);
  CHECK(hosts.owners.LeavingWaitsFor(hosts.now).empty());
  hosts.owners.LetGo(1, hosts.now);
  CHECK_FALSE(hosts.shard(0).standby.has_value());
  CHECK(hosts.shard(1).leader == 0u);
}

TEST_CASE("whoever follows for a host that leaves is not waited for without end",
          "[standby][control][leave]") {
  Hosts hosts(3);
  hosts.owners.OnStarted();
  hosts.frozen = 2;
  hosts.owners.SetLeaving(1, hosts.now);
  const absl::Duration patience = ShardOwners::kPatienceLeases * hosts.facts_.lease_timeout;
  CHECK_FALSE(hosts.owners.LeavingWaitsFor(hosts.now + patience / 2).empty());
  // Shard 1, which it leads, has its standby.
  CHECK(hosts.owners.LeavingWaitsFor(hosts.now + patience).empty());
}

TEST_CASE("of another job, of another rank, or twice: a host is refused", "[standby][control]") {
  Hosts hosts(2);
  v1::HostHello hello;
  hello.set_rank(1);
  hello.set_job_digest("d");
  hello.set_life(99);
  CHECK(absl::IsAlreadyExists(hosts.owners.Attach(hello, hosts.now)));
  hello.set_rank(2);
  CHECK(absl::IsInvalidArgument(hosts.owners.Attach(hello, hosts.now)));
  hello.set_rank(1);
  hello.set_job_digest("e");
  CHECK(absl::IsInvalidArgument(hosts.owners.Attach(hello, hosts.now)));
}

TEST_CASE("status names who leads and who follows", "[standby][control]") {
  Hosts hosts(2);
  hosts.owners.OnStarted();
  hosts.Kill(1);
  hosts.Pass(absl::Seconds(1));
  hosts.now += absl::Milliseconds(200);
  hosts.owners.OnLed(ShardId(1), hosts.now);
  v1::JobStatus status;
  hosts.owners.Fill(&status);
  REQUIRE(status.owners_size() == 2);
  CHECK(status.owners(1).leader() == 0);
  CHECK_FALSE(status.owners(1).has_standby());
  CHECK(status.takeovers() == 1);
  REQUIRE(status.takeover_seconds_size() == 1);
  CHECK(status.takeover_seconds(0) >= 0.2);
}

}  // namespace
}  // namespace tessera
