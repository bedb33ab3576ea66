// Logs that no leader writes: refused in words, before anything is kept for them, and without a trace in what other
// streams have brought.
#include "server/rpc/followed_shards.h"

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "common/consistency/barrier.h"
#include "common/consistency/none.h"
#include "common/rule/add.h"
#include "tests/server/shard/shard_fixture.h"

namespace tessera {
namespace {

constexpr int64_t kShardBytes = 2 * 3 * 4;

std::unique_ptr<Shard> ShardOf(std::unique_ptr<ConsistencyPolicy> policy) {
  Shard::Options options;
  options.shape = ZeroMatrix(2, 3);
  options.policy = std::move(policy);
  options.rule = MakeAdd();
  return std::make_unique<Shard>(std::move(options));
}

Payload Zeros(int64_t bytes) {
  const auto zeros = std::make_shared<const std::string>(static_cast<size_t>(bytes), '\0');
  Payload payload;
  payload.Append({zeros->data(), bytes}, zeros);
  return payload;
}

v1::LogHeader HeaderOf(uint64_t term) {
  v1::LogHeader header;
  header.set_job_digest("digest");
  header.set_layout_hash(7);
  header.set_term(term);
  return header;
}

v1::LogEntry PlanOf(int members) {
  v1::LogEntry entry;
  entry.mutable_plan()->set_generation(1);
  for (int i = 0; i < members; ++i) {
    v1::Member& member = *entry.mutable_plan()->add_members();
    member.set_member(static_cast<uint64_t>(i + 1));
    member.set_rank(static_cast<uint32_t>(i));
    member.set_first_exchange(1);
  }
  return entry;
}

v1::LogEntry FoldOf(uint64_t member) {
  v1::LogEntry entry;
  entry.mutable_fold()->set_member(member);
  entry.mutable_fold()->set_exchange(1);
  entry.mutable_fold()->set_examples(1);
  return entry;
}

// One host that follows shard 0 in term 1, and the stream to it.
struct Host {
  explicit Host(bool is_lockstep = true)
      : shards({"digest", 7, [is_lockstep](ShardId) {
                  return ShardOf(is_lockstep ? MakeBarrier() : MakeNone(1.0f));
                }}) {
    shards.Follow(ShardId(0), 1);
    REQUIRE(shards.PrepareOne());
    v1::LogChunk chunk;
    *chunk.mutable_header() = HeaderOf(1);
    REQUIRE(log.Take(chunk, Payload(), absl::UnixEpoch()).ok());
  }

  // The next entry, or another one than that.
  absl::Status Take(v1::LogEntry entry, int64_t declared = 0, int64_t sent = 0) {
    v1::LogChunk chunk;
    if (entry.position() == 0) entry.set_position(++position);
    entry.set_payload_bytes(static_cast<uint64_t>(declared));
    *chunk.add_entries() = entry;
    return log.Take(chunk, Zeros(sent), absl::UnixEpoch()).status();
  }
  // It is told why, and the copy is given up: nobody leads with it.
  void CheckRefused(const absl::Status& status, const std::string& why) {
    CHECK(absl::IsInvalidArgument(status));
    CHECK_THAT(std::string(status.message()), Catch::Contains(why));
    CHECK(shards.TakeOver(ShardId(0)) == nullptr);
  }

  FollowedShards shards;
  LogReader log{&shards};
  uint64_t position = 0;
};

TEST_CASE("a stream of another job, layout, term or sender is refused", "[standby][strangers]") {
  Host host;
  REQUIRE(host.Take(PlanOf(2)).ok());
  const auto refused = [&](const v1::LogHeader& header) {
    return host.shards.Begin(header).status();
  };
  v1::LogHeader header = HeaderOf(1);
  CHECK(absl::IsFailedPrecondition(refused(header)));  // The term has its stream.
  header.set_layout_hash(8);
  CHECK(absl::IsInvalidArgument(refused(header)));
  header = HeaderOf(1);
  header.set_job_digest("another");
  CHECK(absl::IsInvalidArgument(refused(header)));
  CHECK(absl::IsFailedPrecondition(refused(HeaderOf(2))));
  // A log comes from a server of the run, and a stranger takes nobody's place.
  host.shards.Follow(ShardId(0), 3);
  while (host.shards.PrepareOne()) {
  }
  host.shards.SetServerKey(7);
  CHECK(refused(HeaderOf(3)).message() ==
        "log of shard 0: is not of a server of this run, whose server_key it would have");
  header = HeaderOf(3);
  header.set_server_key(7);
  CHECK(host.shards.Begin(header).ok());
}

TEST_CASE("a refused stream leaves the one that there is", "[standby]") {
  Host host;
  REQUIRE(host.Take(PlanOf(2)).ok());
  v1::LogHeader header = HeaderOf(1);
  header.set_shard(1);
  CHECK(absl::IsFailedPrecondition(host.shards.Begin(header).status()));

  v1::LogEntry commit;
  commit.mutable_commit()->set_time_ns(1);
  commit.set_version(1);
  REQUIRE(host.Take(FoldOf(1)).ok());
  REQUIRE(host.Take(FoldOf(2)).ok());
  REQUIRE(host.Take(commit, kShardBytes, kShardBytes).ok());
  const std::unique_ptr<Shard> copy = host.shards.TakeOver(ShardId(0));
  REQUIRE(copy != nullptr);
  CHECK(copy->counters().version == Version(1));
}

// Making one may take longer than a leader waits for its standby.
TEST_CASE("a log is taken, and said to be, once its shard is made", "[standby]") {
  int made = 0;
  FollowedShards shards({"digest", 7, [&made](ShardId) {
                           ++made;
                           return ShardOf(MakeBarrier());
                         }});
  const auto terms = [&] {
    v1::HostMessage message;
    shards.Fill(&message);
    std::vector<uint64_t> terms;
    for (const v1::ShardOrder& follows : message.follows()) terms.push_back(follows.term());
    return terms;
  };
  CHECK_FALSE(shards.PrepareOne());
  shards.Follow(ShardId(0), 1);
  CHECK(terms().empty());
  CHECK_THAT(std::string(shards.Begin(HeaderOf(1)).status().message()),
             Catch::Contains("is not made yet"));
  CHECK(made == 0);
  CHECK(shards.PrepareOne());
  CHECK_FALSE(shards.PrepareOne());
  CHECK(terms() == std::vector<uint64_t>{1});
  // One that has done nothing yet is as good in another term.
  shards.Follow(ShardId(0), 2);
  CHECK(terms() == std::vector<uint64_t>{2});
  CHECK_FALSE(shards.PrepareOne());
  CHECK(shards.Begin(HeaderOf(2)).ok());
  CHECK(terms() == std::vector<uint64_t>{2});
  CHECK_FALSE(shards.PrepareOne());
  shards.Follow(ShardId(0), 3);
  CHECK(terms().empty());
  CHECK(shards.PrepareOne());
  CHECK(made == 2);
  // Nobody has written to it.
  CHECK(shards.TakeOver(ShardId(0)) == nullptr);
  shards.Follow(ShardId(0), 4);
  CHECK(shards.PrepareOne());
  shards.Keep({});
  CHECK(terms().empty());
  CHECK_FALSE(shards.PrepareOne());
}

TEST_CASE("a shard that is followed no more when it is made is dropped", "[standby]") {
  FollowedShards* to = nullptr;
  FollowedShards shards({"digest", 7, [&to](ShardId) {
                           to->Keep({});
                           return ShardOf(MakeBarrier());
                         }});
  to = &shards;
  shards.Follow(ShardId(0), 1);
  CHECK(shards.PrepareOne());
  v1::HostMessage message;
  shards.Fill(&message);
  CHECK(message.follows_size() == 0);
}

TEST_CASE("an entry that says it has more values than any is refused before one is kept",
          "[standby]") {
  Host host;
  v1::LogEntry commit;
  commit.mutable_commit();
  host.CheckRefused(host.Take(commit, int64_t{1} << 40), "bytes of values, want at most");
}

TEST_CASE("values beyond what the entry said are refused", "[standby]") {
  Host host;
  v1::LogEntry commit;
  commit.mutable_commit();
  host.CheckRefused(host.Take(commit, kShardBytes, kShardBytes + 4), "more values than it says");
}

TEST_CASE("an entry out of its place is refused", "[standby]") {
  Host host;
  v1::LogEntry plan = PlanOf(1);
  plan.set_position(2);
  host.CheckRefused(host.Take(plan), "entry is 2, want 1");
}

TEST_CASE("a plan that no coordinator makes is refused", "[standby]") {
  Host host;
  v1::LogEntry entry = PlanOf(2);
  v1::Member& second = *entry.mutable_plan()->mutable_members(1);
  std::string why = "member 2 is not in rank order";
  SECTION("a rank twice") { second.set_rank(0); }
  SECTION("a rank beyond any") {
    second.set_rank(65535);
    why = "member 2 has rank 65535, want one below 65535";
  }
  SECTION("a member twice") {
    second.set_member(1);
    why = "member 1 is there twice, or nobody";
  }
  SECTION("nobody") {
    second.set_member(0);
    why = "member 0 is there twice, or nobody";
  }
  SECTION("an exchange before the first") {
    second.set_first_exchange(0);
    why = "member 2 begins with no exchange";
  }
  SECTION("an exchange after the last") {
    second.set_first_exchange(uint64_t{1} << 40);
    why = "member 2 begins with no exchange";
  }
  SECTION("a departed site that is a member") {
    entry.mutable_plan()->add_departed_sites()->set_member(2);
    why = "member 2 is there twice, or nobody";
  }
  SECTION("a departed site of no round") {
    entry.mutable_plan()->add_departed_sites()->set_member(3);
    why = "member 3 began with no exchange";
  }
  SECTION("a departed site of a rank beyond any") {
    v1::DepartedSite& departed = *entry.mutable_plan()->add_departed_sites();
    departed.set_member(3);
    departed.set_first_exchange(1);
    departed.set_rank(65535);
    why = "member 3 has rank 65535, want one below 65535";
  }
  SECTION("a share that is none") {
    v1::PartShares& shares = *entry.mutable_plan()->add_shares();
    shares.add_members(1);
    shares.add_shares(0);
    why = "member 1 has share 0";
  }
  host.CheckRefused(host.Take(entry), why);
}

TEST_CASE("a plan in which a member begins another time is refused", "[standby]") {
  Host host;
  v1::LogEntry entry = PlanOf(2);
  REQUIRE(host.Take(entry).ok());
  entry.mutable_plan()->set_generation(2);
  entry.mutable_plan()->mutable_members(1)->set_first_exchange(3);
  host.CheckRefused(host.Take(entry), "member 2 begins another time");
}

TEST_CASE("an image that no shard makes is refused", "[standby]") {
  Host host;
  v1::LogEntry entry;
  v1::ShardImage& image = *entry.mutable_image();
  *image.mutable_plan() = PlanOf(1).plan();
  v1::ShardImage::MemberImage& member = *image.add_members();
  member.set_member(1);
  std::string why = "an exchange beyond any";
  SECTION("whose next exchange is beyond any") { image.set_next_exchange(uint64_t{1} << 40); }
  SECTION("that is whole from beyond any") { image.set_whole_from(~uint64_t{0}); }
  SECTION("of a member beyond any exchange") {
    member.set_folded(~uint64_t{0} - 1);
    why = "member 1 has made exchange 18446744073709551614";
  }
  SECTION("of a member that has made one before its first") {
    image.mutable_plan()->mutable_members(0)->set_first_exchange(5);
    member.set_folded(3);
    why = "member 1 has made exchange 3";
  }
  SECTION("of somebody else") {
    member.set_member(2);
    why = "member 2 has made exchange 0";
  }
  host.CheckRefused(host.Take(entry, kShardBytes, kShardBytes), why);
}

// The sum of folds that a removal completes would be of nothing.
TEST_CASE("where pushes are summed nothing is due without its sum", "[standby]") {
  Host host;
  REQUIRE(host.Take(PlanOf(2)).ok());
  REQUIRE(host.Take(FoldOf(1)).ok());
  v1::LogEntry removal = PlanOf(1);
  removal.mutable_plan()->set_generation(2);
  REQUIRE(host.Take(removal).ok());
  v1::LogEntry advance;
  advance.set_advance_ns(1);
  REQUIRE(host.Take(advance).ok());
  v1::LogEntry commit;
  commit.mutable_commit();
  commit.set_version(1);
  host.CheckRefused(host.Take(commit, kShardBytes, kShardBytes), "want folds and their sum");
}

TEST_CASE("folds whose sum does not come are not kept for ever", "[standby]") {
  Host host;
  REQUIRE(host.Take(PlanOf(2)).ok());
  REQUIRE(host.Take(FoldOf(1)).ok());
  const v1::LogEntry large = PlanOf(5000);
  absl::Status status;
  int taken = 0;
  for (; status.ok() && taken < 2000; ++taken) status = host.Take(large);
  CHECK(taken > 100);
  host.CheckRefused(status, "have no sum");
}

TEST_CASE("proposals that nobody settles are not kept for ever", "[standby]") {
  Host host(/*is_lockstep=*/false);
  v1::LogEntry propose;
  propose.mutable_propose()->mutable_member()->set_first_exchange(5);
  absl::Status status;
  for (int i = 0; status.ok() && i < 10000; ++i) {
    propose.mutable_propose()->set_proposal(static_cast<uint64_t>(i));
    status = host.Take(propose);
  }
  host.CheckRefused(status, "too many proposals");
}

}  // namespace
}  // namespace tessera
