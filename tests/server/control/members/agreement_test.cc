#include "server/control/members/agreement.h"

#include <catch2/catch.hpp>

namespace tessera {
namespace {

TEST_CASE("servers agree once all promise the proposed exchange", "[control][agreement]") {
  Agreement a(2, 7, Exchange(10));
  CHECK(a.OnReply(ShardId(0), 6, Exchange(10)) == Agreement::Outcome::kWaiting);
  CHECK(a.Missing().size() == 2);
  CHECK(a.OnReply(ShardId(0), 7, Exchange(10)) == Agreement::Outcome::kWaiting);
  CHECK(a.OnReply(ShardId(0), 7, Exchange(10)) == Agreement::Outcome::kWaiting);
  CHECK(a.OnReply(ShardId(9), 7, Exchange(10)) == Agreement::Outcome::kWaiting);
  REQUIRE(a.Missing().size() == 1);
  CHECK(a.Missing()[0] == ShardId(1));
  CHECK(a.OnReply(ShardId(1), 7, Exchange(10)) == Agreement::Outcome::kAgreed);
}

TEST_CASE("a job of any speed is caught up with", "[control][agreement]") {
  const uint64_t per_round = GENERATE(1, 100, 5000);
  uint64_t collecting = 1, number = 1;
  Agreement a(1, number, Exchange(3));
  for (int round = 0; round < 20; ++round) {
    collecting += per_round;
    // A server that holds nothing and names the exchange after the next.
    const uint64_t first =
        a.proposed().value() <= collecting ? collecting + 2 : a.proposed().value();
    if (a.OnReply(ShardId(0), number, Exchange(first)) == Agreement::Outcome::kAgreed) return;
    a = a.Raised(++number);
    CHECK(a.proposed() >= Exchange(first));
  }
  FAIL("no agreement");
}

TEST_CASE("a server that has come since it was proposed is not asked, nor by who goes on with it",
          "[agreement]") {
  Agreement agreement(2, 7, Exchange(10));
  REQUIRE(agreement.OnReply(ShardId(0), 7, Exchange(10)) == Agreement::Outcome::kWaiting);
  v1::OpenProposal state;
  agreement.Save(&state);
  Agreement loaded = Agreement::Load(state, 3);
  CHECK(loaded.Missing() == std::vector<ShardId>{ShardId(1)});
  CHECK(loaded.OnReply(ShardId(2), 7, Exchange(12)) == Agreement::Outcome::kWaiting);
  CHECK(loaded.OnReply(ShardId(1), 7, Exchange(10)) == Agreement::Outcome::kAgreed);
}

}  // namespace
}  // namespace tessera
