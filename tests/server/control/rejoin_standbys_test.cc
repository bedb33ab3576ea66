// Jobs with standbys that go back to a checkpoint all the same: a shard's last leader is lost.
#include <catch2/catch.hpp>

#include "tests/server/control/rejoin_fixture.h"

namespace tessera {
namespace {

// The process of server `rank`, which leads its shard and follows the other one.
void AttachHost(ControlFixture* control, uint32_t rank, uint64_t life) {
  v1::HostHello hello;
  hello.set_rank(rank);
  hello.set_life(life);
  hello.set_job_digest("d1");
  hello.set_layout_hash(77);
  hello.set_address(control->servers[rank].hello.address());
  REQUIRE(control->coordinator->AttachHost(hello, control->now).ok());
}

// What a host says of the shard that it leads.
void SayOfStandbys(ControlFixture* control, uint32_t host, bool in_sync) {
  v1::HostMessage message;
  v1::LeaderReport& report = *message.add_leads();
  report.set_shard(host);
  report.set_term(control->coordinator->membership().owners()->shards()[host].term);
  report.set_in_sync(in_sync);
  if (!in_sync) report.set_broken("its stream ended");
  control->coordinator->OnHostMessage(host, message, control->now);
}

void AttachLeader(ControlFixture* control, int rank) {
  control->servers[rank].hello.set_lead_term(
      control->coordinator->membership().owners()->shards()[rank].lead_term);
  REQUIRE(control->Attach(rank).ok());
}

// Two members train over two hosts and have a checkpoint. Shard 1 is without a standby, and its leader freezes.
class FrozenHost : public ControlFixture {
 public:
  FrozenHost() : ControlFixture(WithStandbys()) {
    for (uint32_t host : {0, 1}) AttachHost(this, host, 10 + host);
    for (uint32_t host : {0, 1}) SayOfStandbys(this, host, true);
    for (int rank : {0, 1}) AttachLeader(this, rank);
    Start(2);
    MakeCheckpoint(this);
    SayOfStandbys(this, 1, false);
    alive.mutable_counters();
    Pass(1.2);
    REQUIRE(Renew(1)->paused());
  }

  // All but host 1 go on for so many leases.
  void Pass(double leases) {
    for (int i = 0; i < 10 * leases; ++i) {
      coordinator->OnHostMessage(0, v1::HostMessage(), now);
      coordinator->OnShardMessage(ShardId(0), alive, now);
      for (const uint64_t member : {1, 2}) REQUIRE(Renew(member).ok());
      Tick(coordinator->facts().lease_timeout / 10);
    }
  }
  uint64_t rollbacks() const { return coordinator->Status(now).checkpoint().rollbacks(); }

  v1::ShardMessage alive;

 private:
  static JobFacts WithStandbys() {
    JobFacts facts = RejoinFacts();
    facts.standbys = true;
    return facts;
  }
};

TEST_CASE("a leader that was given up is not taken back when it wakes: its shard is lost",
          "[rejoin][standby]") {
  FrozenHost control;
  // It wakes, and says more on its connection before it is told.
  control.coordinator->OnShardMessage(ShardId(1), control.alive, control.now);
  CHECK(control.Renew(1)->paused());
  CHECK(Words(control.coordinator->Status(control.now).waiting_for()) == "server 1");

  AttachHost(&control, 1, 4711);
  control.servers[1].hello.set_life(4711);
  AttachLeader(&control, 1);
  control.StepAll();
  CHECK(control.rollbacks() == 1);
  CHECK(control.servers[1].restore.step() == 10);
}

TEST_CASE("a shard whose new leader is lost, too, before it has said a word is still lost",
          "[rejoin][standby]") {
  FrozenHost control;
  AttachHost(&control, 1, 4711);
  control.coordinator->DetachHost(1, 4711, control.now);
  AttachHost(&control, 1, 4712);
  CHECK(control.Renew(1)->paused());
  control.servers[1].hello.set_life(4712);
  AttachLeader(&control, 1);
  control.StepAll();
  CHECK(control.rollbacks() == 1);
  CHECK(control.servers[1].restore.step() == 10);
}

TEST_CASE(
    "a living host that is to lead what was lost has a lease to begin, and the job goes back with "
    "it",
    "[rejoin][standby]") {
  FrozenHost control;
  const ShardOwners& owners = *control.coordinator->membership().owners();
  // Nobody comes in its place.
  CHECK_FALSE(owners.shards()[1].leader.has_value());
  control.Pass(3);
  REQUIRE(owners.shards()[1].leader == 0u);
  CHECK(owners.shards()[0].leader == 0u);
  // It is slow to begin.
  control.Pass(0.5);
  CHECK(owners.shards()[1].leader == 0u);
  CHECK(control.coordinator->Status(control.now).failure().empty());
  control.servers[1].hello.set_life(4711);
  control.servers[1].hello.set_address(control.servers[0].hello.address());
  control.servers[1].inbox.clear();
  AttachLeader(&control, 1);
  CHECK(control.rollbacks() == 1);
  control.StepAll();
  for (const int rank : {0, 1}) CHECK(control.servers[rank].restore.step() == 10);
}

TEST_CASE("a standby that followed a leader before it read the checkpoint cannot take over",
          "[rejoin][standby]") {
  FrozenHost control;
  const ShardOwners& owners = *control.coordinator->membership().owners();
  AttachHost(&control, 1, 4711);
  control.servers[1].hello.set_life(4711);
  control.servers[1].inbox.clear();
  AttachLeader(&control, 1);
  REQUIRE(control.rollbacks() == 1);
  control.Pass(0.2);
  // What both have is as it began, and of that their standbys have all.
  const uint64_t before = owners.shards()[1].term;
  for (const uint32_t host : {0, 1}) SayOfStandbys(&control, host, true);
  REQUIRE(owners.AllProtected());
  control.StepAll();
  CHECK_FALSE(owners.shards()[0].in_sync);
  CHECK_FALSE(owners.shards()[1].in_sync);
  REQUIRE(owners.shards()[1].standby == 0u);
  CHECK(owners.shards()[1].term > before);
  // It is said once more, late.
  v1::HostMessage message;
  v1::LeaderReport& report = *message.add_leads();
  report.set_shard(1);
  report.set_term(before);
  report.set_in_sync(true);
  control.coordinator->OnHostMessage(1, message, control.now);
  CHECK_FALSE(owners.shards()[1].in_sync);
  CHECK_FALSE(owners.CanDoWithout(1));
  for (const uint32_t host : {0, 1}) SayOfStandbys(&control, host, true);
  CHECK(owners.AllProtected());
}

TEST_CASE("what a lost leader had refused, or was sent again, is counted with its successor's",
          "[rejoin][standby]") {
  JobFacts facts = RejoinFacts();
  facts.standbys = true;
  const absl::Time now = absl::FromUnixSeconds(1000);
  ServerTable servers(facts);
  v1::ServerHello hello;
  v1::ServerCounters counters;
  const auto is_known = [&servers](uint64_t refused) {
    const v1::ServerCounters& known = servers.at(ShardId(0)).counters;
    CHECK(known.refused() == 4 * refused);
    CHECK(known.refused_non_finite() == 2 * refused);
    CHECK(known.duplicates() == refused);
  };
  uint64_t before = 0;
  for (const uint64_t life : {11, 12, 13}) {
    hello.set_life(life);
    REQUIRE(servers.Attach(hello, /*started=*/life > 11, now).ok());
    is_known(before);
    for (const uint64_t own : {1, 3}) {
      counters.set_refused(4 * own);
      counters.set_refused_non_finite(2 * own);
      counters.set_duplicates(own);
      servers.OnCounters(ShardId(0), counters, now);
      is_known(before + own);
    }
    before += 3;
    servers.HandOver(ShardId(0), now);
    // Another coordinator goes on.
    v1::MembershipState state;
    servers.Save(&state);
    REQUIRE(servers.Load(state).ok());
  }
}

}  // namespace
}  // namespace tessera
