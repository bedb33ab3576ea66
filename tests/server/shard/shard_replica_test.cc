// A shard that is a replica: what it folds, and how it joins.
#include <catch2/catch.hpp>
#include <memory>
#include <vector>

#include "common/consistency/none.h"
#include "common/rule/add.h"
#include "tests/server/shard/shard_fixture.h"

namespace tessera {
namespace {

using Values = std::vector<float>;

std::unique_ptr<Shard> MakeReplica(int64_t rows = 2, int64_t columns = 1) {
  Shard::Options options;
  options.shape = ZeroMatrix(rows, columns);
  options.placement = Placement::kReplicated;
  options.policy = MakeNone(1.0f);
  options.rule = MakeAdd();
  return std::make_unique<Shard>(std::move(options));
}

ReceivedPush PushOf(const Shard& shard, uint64_t member, uint64_t exchange, const Values& values) {
  ReceivedPush push;
  push.member = MemberId(member);
  push.exchange = Exchange(exchange);
  push.layout_hash = shard.layout_hash();
  push.from_peer = true;
  push.payload = PayloadOf(values);
  return push;
}

absl::Status Send(Shard* shard, uint64_t member, uint64_t exchange, float value) {
  return shard->Accept(PushOf(*shard, member, exchange, {value, -value})).status();
}

Values ValuesAfter(Shard* shard) {
  shard->replica().FoldAccepted(absl::UnixEpoch());
  return ValuesOf(*shard->ReadNow().snapshot);
}

ReplicaCopy CopyOf(Shard* shard) { return shard->replica().MakeCopy(absl::UnixEpoch()).value(); }

absl::Status Take(Shard* joiner, const ReplicaCopy& copy) {
  return joiner->replica().TakeCopy(copy.table, ValuesOf(*copy.read.snapshot));
}

TEST_CASE("a replica folds what it has accepted of a member that is removed", "[shard][replica]") {
  const auto shard = MakeReplica();
  shard->SetPlan(PlanOfFirst(2));
  CHECK(Send(shard.get(), 1, 1, 1).ok());
  CHECK(Send(shard.get(), 2, 1, 10).ok());
  CHECK(Send(shard.get(), 2, 2, 100).ok());
  const std::vector<Shard::Removed> removed = shard->SetPlan(PlanOf(2, {{1, 1}}));
  REQUIRE(removed.size() == 1);
  CHECK(removed[0].last_exchange == Exchange(2));
  CHECK(ValuesAfter(shard.get()) == Values{111, -111});
  CHECK(Send(shard.get(), 2, 3, 1000).code() == absl::StatusCode::kFailedPrecondition);
  CHECK(CopyOf(shard.get()).table.folded.at(MemberId(2)) == Exchange(2));
}

TEST_CASE("pushes of peers are no entries of the staleness", "[shard][replica]") {
  const auto shard = MakeReplica();
  shard->SetPlan(PlanOfFirst(2));
  CHECK(Send(shard.get(), 1, 1, 1).ok());
  ReceivedPush own = PushOf(*shard, 2, 1, {1, 1});
  own.from_peer = false;
  CHECK(shard->Accept(std::move(own)).ok());
  ValuesAfter(shard.get());
  CHECK(shard->counters().staleness[0] == 0);
  CHECK(shard->counters().staleness[1] == 1);
}

TEST_CASE("a part of a model takes no push of a peer", "[shard][replica]") {
  ShardFixture part(ZeroMatrix(2, 1), MakeNone(1.0f), MakeAdd());
  part.shard.SetPlan(PlanOfFirst(1));
  ReceivedPush push = part.Good(1, 1, {1, 1});
  push.from_peer = true;
  CHECK(part.shard.Accept(std::move(push)).status().code() == absl::StatusCode::kInvalidArgument);
  CHECK(part.shard.replica().MakeCopy(part.now).status().code() ==
        absl::StatusCode::kInvalidArgument);
}

TEST_CASE("a replica that has no plan yet asks to be pushed to again", "[shard][replica]") {
  const auto shard = MakeReplica();
  CHECK(Send(shard.get(), 1, 1, 1).code() == absl::StatusCode::kUnavailable);
}

TEST_CASE("a joiner has every push once, whatever its copy contains", "[shard][replica]") {
  const auto donor = MakeReplica(), joiner = MakeReplica();
  donor->SetPlan(PlanOfFirst(2));
  joiner->replica().AwaitCopy();
  joiner->SetPlan(PlanOfFirst(2));
  CHECK_FALSE(joiner->replica().HeardFromAll());
  CHECK(Send(donor.get(), 1, 1, 1).ok());
  CHECK(Send(donor.get(), 2, 1, 2).ok());
  // It is pushed to from the second exchange of 1 and the third of 2 on.
  CHECK(Send(joiner.get(), 1, 2, 10).ok());
  CHECK_FALSE(joiner->replica().HeardFromAll());
  CHECK(Send(donor.get(), 2, 2, 20).ok());
  CHECK(Send(joiner.get(), 2, 3, 200).ok());
  CHECK(joiner->replica().HeardFromAll());
  // A repeated one and one that leaves out an exchange are what they always are.
  CHECK(joiner->Accept(PushOf(*joiner, 2, 3, {0, 0}))->duplicate);
  CHECK(Send(joiner.get(), 2, 5, 0).code() == absl::StatusCode::kFailedPrecondition);
  // The donor has one of the two that were kept.
  CHECK(Send(donor.get(), 1, 2, 10).ok());
  CHECK(joiner->Read(MemberId(1), Exchange(2))->has_value() == false);
  CHECK_FALSE(joiner->Advance(absl::UnixEpoch()));
  CHECK(Take(joiner.get(), CopyOf(donor.get())).ok());
  CHECK(joiner->counters().copied);
  CHECK(ValuesAfter(joiner.get()) == Values{233, -233});
  CHECK(joiner->Read(MemberId(1), Exchange(2))->has_value());
  // And goes on as if it had always been there.
  CHECK(Send(donor.get(), 2, 3, 200).ok());
  for (Shard* const shard : {donor.get(), joiner.get()}) CHECK(Send(shard, 1, 3, 1000).ok());
  CHECK(ValuesAfter(joiner.get()) == Values{1233, -1233});
  CHECK(ValuesAfter(donor.get()) == ValuesAfter(joiner.get()));
  CHECK(joiner->counters().version == donor->counters().version);
  // The order to copy comes again with a new connection.
  joiner->replica().AwaitCopy();
  CHECK(joiner->Read(MemberId(1), Exchange(3))->has_value());
}

TEST_CASE("a joiner refuses a copy that would lose a push", "[shard][replica]") {
  const auto donor = MakeReplica(), joiner = MakeReplica();
  donor->SetPlan(PlanOfFirst(2));
  joiner->replica().AwaitCopy();
  joiner->SetPlan(PlanOf(2, {{1, 1}, {2, 1}}));
  CHECK(Send(joiner.get(), 1, 3, 1).ok());
  CHECK(Send(joiner.get(), 2, 1, 1).ok());
  CHECK(Send(donor.get(), 1, 1, 1).ok());
  // The donor's plan is older: it may still take pushes that this one would refuse.
  CHECK(Take(joiner.get(), CopyOf(donor.get())).message() ==
        "copy of a replica: lacks plan 2, has 1");
  donor->SetPlan(PlanOf(2, {{1, 1}, {2, 1}}));
  // Exchange 2 of member 1 has not come here.
  CHECK(Take(joiner.get(), CopyOf(donor.get())).message() ==
        "copy of a replica: lacks pushes of member 1");
  CHECK(Send(donor.get(), 1, 2, 1).ok());
  ReplicaCopy copy = CopyOf(donor.get());
  CHECK(joiner->replica().TakeCopy(copy.table, {1.0f}).code() ==
        absl::StatusCode::kInvalidArgument);
  CHECK(joiner->replica().MakeCopy(absl::UnixEpoch()).status().code() ==
        absl::StatusCode::kUnavailable);
  CHECK(Take(joiner.get(), copy).ok());
  CHECK(ValuesAfter(joiner.get()) == Values{4, -4});
}

TEST_CASE("a joiner has the pushes of a member that goes meanwhile", "[shard][replica]") {
  const auto donor = MakeReplica(), joiner = MakeReplica();
  donor->SetPlan(PlanOfFirst(2));
  joiner->replica().AwaitCopy();
  joiner->SetPlan(PlanOfFirst(2));
  CHECK(Send(donor.get(), 2, 1, 1).ok());
  for (uint64_t exchange : {2, 3}) CHECK(Send(joiner.get(), 2, exchange, 10).ok());
  CHECK(Send(joiner.get(), 1, 1, 100).ok());
  CHECK(Send(donor.get(), 2, 2, 10).ok());
  for (Shard* const shard : {donor.get(), joiner.get()}) shard->SetPlan(PlanOf(2, {{1, 1}}));
  CHECK(Take(joiner.get(), CopyOf(donor.get())).ok());
  CHECK(ValuesAfter(joiner.get()) == Values{121, -121});
}

TEST_CASE("what a joiner keeps is bounded, but for everybody's first push", "[shard][replica]") {
  constexpr int64_t kEntries = int64_t{1} << 21;
  const auto joiner = MakeReplica(kEntries, 1);
  joiner->replica().AwaitCopy();
  joiner->SetPlan(PlanOfFirst(2));
  const Values values(kEntries);
  uint64_t exchange = 1;
  while (joiner->Accept(PushOf(*joiner, 1, exchange, values)).ok()) ++exchange;
  const absl::Status full = joiner->Accept(PushOf(*joiner, 1, exchange, values)).status();
  CHECK(full.code() == absl::StatusCode::kUnavailable);
  CHECK(exchange > 1);
  CHECK(joiner->counters().staged_bytes <= 4 * kEntries * 4);
  // The other member may be waiting for the first one: what any copy contains makes room.
  CHECK(joiner->replica().WantsCopy());
  const auto donor = MakeReplica(kEntries, 1), other = MakeReplica(kEntries, 1);
  for (Shard* const shard : {donor.get(), other.get()}) shard->SetPlan(PlanOfFirst(2));
  CHECK(donor->Accept(PushOf(*donor, 1, 1, values)).ok());
  CHECK(Take(joiner.get(), CopyOf(donor.get())).message() ==
        "copy of a replica: lacks pushes of member 2");
  CHECK(joiner->Accept(PushOf(*joiner, 1, exchange, values)).ok());
  CHECK_FALSE(joiner->replica().HeardFromAll());
  CHECK(joiner->Reserve(MemberId(2), kEntries * 4));
  CHECK(joiner->Accept(PushOf(*joiner, 2, 1, values)).ok());
  CHECK(joiner->replica().HeardFromAll());
  // What was dropped must be in the copy, whichever replica it is of.
  CHECK(Take(joiner.get(), CopyOf(other.get())).message() ==
        "copy of a replica: lacks pushes of member 1");
  CHECK(Take(joiner.get(), CopyOf(donor.get())).ok());
}

}  // namespace
}  // namespace tessera
