// Nobody waits for ever, whatever the policy: thousands of clusters, a seed each.
#include "tests/server/shard/waiting_cluster.h"

#include <catch2/catch.hpp>

#include <set>

#include "common/consistency/forwarding_policy.h"
#include "common/consistency/none.h"
#include "common/consistency/quorum.h"
#include "common/consistency/softsync.h"
#include "common/consistency/ssp.h"

namespace tessera {
namespace {

void CheckNobodyWaitsForEver(uint64_t seeds,
                             const std::function<ClusterOptions(uint64_t)>& options_of) {
  for (uint64_t seed = 0; seed < seeds; ++seed) {
    INFO("seed " << seed);
    REQUIRE(RunCluster(seed, options_of(seed)) == "");
  }
}

TEST_CASE("ssp lets nobody wait for ever, and nobody read beyond the bound", "[shard][waiting]") {
  CheckNobodyWaitsForEver(10000, [](uint64_t seed) {
    ClusterOptions options;
    options.bound = seed % 4;
    options.policy = [bound = options.bound] { return MakeSsp(bound, 0.5f); };
    return options;
  });
}

TEST_CASE("a quorum lets nobody wait for ever", "[shard][waiting]") {
  CheckNobodyWaitsForEver(6000, [](uint64_t seed) {
    ClusterOptions options;
    options.policy = [seed] {
      return MakeQuorum({static_cast<int64_t>(1 + seed % 5), absl::Seconds(seed / 5 % 3)});
    };
    return options;
  });
}

TEST_CASE("softsync lets nobody wait, and evaluations see all pushes", "[shard][waiting]") {
  CheckNobodyWaitsForEver(2000, [](uint64_t seed) {
    ClusterOptions options;
    options.policy = [seed] { return MakeSoftsync(1 + seed % 5, StalenessWeight()); };
    return options;
  });
}

TEST_CASE("without consistency nobody waits", "[shard][waiting]") {
  CheckNobodyWaitsForEver(500, [](uint64_t seed) {
    ClusterOptions options;
    options.policy = [] { return MakeNone(1.0f); };
    return options;
  });
}

// --- that these tests would see it ---

// A worker whose push is in the open round waits for it, though it was late.
class LateWorkersWait final : public ForwardingPolicy {
 public:
  using ForwardingPolicy::ForwardingPolicy;
  Verdict OnPush(const PushFacts& push) override {
    in_round_.insert(push.member);
    const Verdict verdict = ForwardingPolicy::OnPush(push);
    if (verdict.commit) in_round_.clear();
    return verdict;
  }
  std::optional<float> CommitDue(absl::Time now) override {
    const std::optional<float> due = ForwardingPolicy::CommitDue(now);
    if (due.has_value()) in_round_.clear();
    return due;
  }
  bool MayRead(MemberId member, Exchange after) const override {
    return in_round_.count(member) == 0;
  }

 private:
  std::set<MemberId> in_round_;
};

class NobodyRests final : public ForwardingPolicy {
 public:
  using ForwardingPolicy::ForwardingPolicy;
  void SetResting(MemberId member, bool resting) override {}
};

template <typename Broken>
std::set<std::string> Violations(uint64_t bound,
                                 const std::function<std::unique_ptr<ConsistencyPolicy>()>& make) {
  std::set<std::string> violations;
  for (uint64_t seed = 0; seed < 2000; ++seed) {
    ClusterOptions options;
    options.bound = bound;
    options.policy = [&] { return std::make_unique<Broken>(make()); };
    const std::string violation = RunCluster(seed, options);
    violations.insert(violation.substr(0, violation.find(':')));
  }
  return violations;
}

TEST_CASE("a quorum whose late workers wait is found to wait for ever", "[shard][waiting]") {
  const auto quorum = [] { return MakeQuorum({2, absl::ZeroDuration()}); };
  CHECK(Violations<LateWorkersWait>(kNoBound, quorum).count("wait for ever") == 1);
  CHECK(Violations<ForwardingPolicy>(kNoBound, quorum) == std::set<std::string>{""});
}

TEST_CASE("policies that do not know of rests are found out", "[shard][waiting]") {
  const auto ssp = [] { return MakeSsp(1, 1); };
  const auto quorum = [] { return MakeQuorum({4, absl::Seconds(1)}); };
  const auto softsync = [] { return MakeSoftsync(3, StalenessWeight()); };
  CHECK(Violations<NobodyRests>(1, ssp).count("wait for ever") == 1);
  CHECK(Violations<NobodyRests>(kNoBound, quorum).count("wait for ever") == 1);
  CHECK(
      Violations<NobodyRests>(kNoBound, softsync).count("an evaluation does not see all pushes") ==
      1);
}

TEST_CASE("an ssp with a larger bound than it says is found out", "[shard][waiting]") {
  const auto ssp = [] { return MakeSsp(3, 1); };
  CHECK(Violations<ForwardingPolicy>(2, ssp).size() > 1);
}

}  // namespace
}  // namespace tessera
