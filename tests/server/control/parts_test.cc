// Parts that go by speed, through the whole control plane: what the servers are told, and when.
#include <catch2/catch.hpp>
#include <cmath>

#include "common/base/log.h"
#include "server/shard/shard_messages.h"
#include "tests/server/control/control_fixture.h"

namespace tessera {
namespace {

struct Fixture : ControlFixture {
  explicit Fixture(int workers, int width = 64)
      : ControlFixture([&] {
          SetLogLevel(LogLevel::kError);
          JobFacts facts = Facts(2, workers);
          facts.subnets = facts.parts_by_speed = true;
          facts.members_max = width;
          return facts;
        }()) {
    Start(workers);
  }

  // The member has ended this exchange, so many timed steps after its part last changed.
  void Say(uint64_t member, uint64_t exchange, double speed, uint64_t steps = 100) {
    v1::RenewRequest request;
    request.set_member(member);
    request.mutable_progress()->set_exchange(exchange);
    request.mutable_progress()->set_step(exchange);
    request.mutable_progress()->set_steps_per_second(speed);
    request.mutable_progress()->set_speed_steps(steps);
    REQUIRE(coordinator->Renew(request, now).ok());
  }
  // Servers handle all they are sent.
  void Go() {
    Tick(absl::Milliseconds(10));
    StepAll();
  }
  void SetCollecting(uint64_t exchange) {
    for (FakeServer& server : servers) server.collecting = exchange;
    Heartbeat();
  }
  std::vector<uint32_t> Shares(uint64_t round) {
    const Plan plan = ToPlan(servers[0].plan);
    const Plan other = ToPlan(servers[1].plan);
    const std::vector<MemberId> sites = SitesOf(plan, Exchange(round));
    CHECK(sites == SitesOf(other, Exchange(round)));
    const std::vector<uint32_t> shares = SharesOf(plan, Exchange(round), sites);
    CHECK(shares == SharesOf(other, Exchange(round), sites));
    return shares;
  }
  // Of the shares agreed on last.
  uint64_t Begin() {
    return servers[0].plan.shares(servers[0].plan.shares_size() - 1).first_exchange();
  }
  double Part(uint64_t member) {
    return coordinator->Status(now).members(static_cast<int>(member) - 1).part();
  }
  uint64_t generation() { return servers[0].plan.generation(); }
};

using Equal = std::vector<uint32_t>;

TEST_CASE("a slower member gets a smaller part from an exchange that all servers agree on",
          "[control][parts]") {
  Fixture f(2);
  CHECK(f.Shares(1) == Equal{1, 1});
  CHECK(f.Part(1) == 0.5);
  f.Say(1, 3, 100);
  f.Say(2, 3, 25);
  f.SetCollecting(4);
  f.Tick(absl::Milliseconds(10));
  // Proposed, and not in force before both have promised.
  REQUIRE(f.Step(0));
  CHECK(f.servers[0].held.size() == 1);
  CHECK(f.Shares(100) == Equal{1, 1});
  f.StepAll();
  // One square root of four apart.
  CHECK(f.Begin() == 5);
  CHECK(f.Shares(4) == Equal{1, 1});
  const std::vector<uint32_t> shares = f.Shares(5);
  CHECK(shares[0] == Approx(2.0 * shares[1]).epsilon(1e-4));
  CHECK(f.Part(1) == Approx(2.0 / 3));
  CHECK(f.Part(2) == Approx(1.0 / 3));
  CHECK(f.servers[0].held.empty());
  CHECK(f.servers[1].held.empty());
}

TEST_CASE("speeds of earlier parts, of few steps, short times or some members only change nothing",
          "[control][parts]") {
  Fixture f(2);
  const uint64_t before = f.generation();
  f.Say(1, 3, 100);
  f.Go();
  f.Say(2, 3, 25, 19);
  f.Go();
  f.Say(2, 0, 25);
  f.Go();
  f.Say(2, 3, 1000, 249);
  f.Go();
  f.Say(2, 3, 0);
  f.Go();
  CHECK(f.generation() == before);
  f.Say(2, 3, 96);
  f.Go();
  CHECK(f.generation() == before);
  f.Say(2, 3, 25, 20);
  f.SetCollecting(4);
  f.Go();
  CHECK(f.generation() == before + 1);
  REQUIRE(f.Begin() == 5);
  const std::vector<uint32_t> shares = f.Shares(5);
  CHECK(shares != Equal{1, 1});

  // The same speeds again, of parts that are not in force yet or have just begun.
  f.Say(1, 4, 100);
  f.Say(2, 4, 25);
  f.Go();
  CHECK(f.generation() == before + 1);
  f.SetCollecting(6);
  f.Say(1, 5, 100);
  f.Say(2, 5, 50);
  f.Go();
  CHECK(f.generation() == before + 2);
  REQUIRE(f.Begin() == 7);
  CHECK(f.Shares(6) == shares);
  CHECK(f.Shares(7) != shares);
  // What servers have behind them is no longer told.
  CHECK(f.servers[0].plan.shares_size() == 2);
}

TEST_CASE("those that stay keep their parts in proportion, and a joiner gets the mean",
          "[control][parts]") {
  Fixture f(3);
  f.Say(1, 3, 400);
  f.Say(2, 3, 100);
  f.Say(3, 3, 100);
  f.SetCollecting(4);
  f.Go();
  const std::vector<uint32_t> first = f.Shares(f.Begin());
  CHECK(first[0] == Approx(2.0 * first[1]).epsilon(1e-3));
  CHECK(first[1] == first[2]);

  // A lost one keeps its place until a round that is agreed on.
  f.SetCollecting(7);
  REQUIRE(f.Leave(2, "gone").ok());
  REQUIRE(f.Step(0));
  REQUIRE(f.Step(1));
  CHECK(f.Shares(100) == first);
  f.StepAll();
  REQUIRE(f.Begin() == 8);
  CHECK(f.Shares(7) == first);
  const std::vector<uint32_t> two = f.Shares(8);
  REQUIRE(two.size() == 2);
  CHECK(two[0] == Approx(2.0 * two[1]).epsilon(1e-3));

  f.SetCollecting(10);
  const uint64_t joiner = f.Join()->member();
  f.StepAll();
  CHECK(f.Join(joiner)->admitted());
  const uint64_t begin = f.Join(joiner)->first_exchange();
  CHECK(f.Shares(begin - 1) == two);
  // By rank: it took over the lost one's.
  const std::vector<uint32_t> three = f.Shares(begin);
  REQUIRE(three.size() == 3);
  CHECK(three[0] == Approx(2.0 * three[2]).epsilon(1e-3));
  CHECK(three[1] == Approx(0.5 * (three[0] + three[2])).epsilon(1e-3));
  CHECK(f.Part(joiner) == Approx(1.0 / 3).epsilon(1e-3));
  CHECK(f.Part(2) == 0);
}

TEST_CASE("a joiner is admitted before parts are sized anew, and training that is over sizes none",
          "[control][parts]") {
  Fixture f(2);
  f.Say(1, 3, 100);
  f.Say(2, 3, 25);
  const uint64_t joiner = f.Join()->member();
  f.StepAll();
  CHECK(f.Join(joiner)->admitted());
  CHECK(f.Shares(100) == Equal{1, 1, 1});
  const uint64_t before = f.generation();
  f.Go();
  CHECK(f.generation() == before);
}

TEST_CASE("after any comings and goings everybody has a neuron of the narrowest layer",
          "[control][parts]") {
  const int seed = GENERATE(range(0, 40));
  std::mt19937 random(seed);
  CAPTURE(seed);
  const int width = 3 + seed % 9;
  Fixture f(2, width);
  std::vector<uint64_t> live = {1, 2};
  uint64_t collecting = 1;
  for (int i = 0; i < 60; ++i) {
    switch (random() % 4) {
      case 0:
        if (live.size() > 1) {
          const size_t which = random() % live.size();
          REQUIRE(f.Leave(live[which], "gone").ok());
          live.erase(live.begin() + static_cast<int64_t>(which));
        }
        break;
      case 1:
        if (static_cast<int>(live.size()) < width) {
          const auto joined = f.Join();
          REQUIRE(joined.ok());
          live.push_back(joined->member());
        }
        break;
      default:
        for (const uint64_t member : live) {
          if (f.StateOf(member) != MemberState::kAdmitted) continue;
          f.Say(member, collecting + 4, std::exp2(random() % 6));
        }
        break;
    }
    f.Go();
    collecting += random() % 4;
    f.SetCollecting(collecting);
    f.StepAll();
    for (uint64_t round = collecting; round < collecting + 9; ++round) {
      SubnetPlace place;
      place.shares = f.Shares(round);
      for (place.site = 0; place.site < place.sites(); ++place.site) {
        CAPTURE(i, round, place.site, place.shares);
        REQUIRE_FALSE(PartOf(place, 1, width).empty());
      }
    }
  }
}

}  // namespace
}  // namespace tessera
