// A job that very many workers join and leave: of those that ended long ago sums are kept, and all that is told of the
// job stays as it was.
#include <catch2/catch.hpp>
#include <string>

#include "server/control/members/member_pace.h"
#include "tests/server/control/rejoin_fixture.h"

namespace tessera {
namespace {

constexpr uint64_t kMany = kEndedKept + 50;

const MemberTable& Members(const ControlFixture& control) {
  return control.coordinator->membership().members();
}

// Very many workers join and leave again before anybody has admitted them.
void ComeAndGo(ControlFixture* control) {
  for (uint64_t i = 0; i < kMany; ++i) {
    const auto joined = control->Join();
    REQUIRE(joined.ok());
    REQUIRE(control->Leave(joined->member()).ok());
    for (FakeServer& server : control->servers) server.inbox.clear();
  }
}

v1::Traffic AllTraffic(const v1::JobStatus& status) {
  v1::Traffic sum = status.unreported();
  for (const v1::WorkerReport& report : status.worker_reports()) {
    sum.set_exchanges(sum.exchanges() + report.exchanges());
    sum.set_push_payload_bytes(sum.push_payload_bytes() + report.push_payload_bytes());
  }
  return sum;
}

TEST_CASE("state and status have the members that ended last, and ids are not used again",
          "[forgotten]") {
  ControlFixture control(ControlFixture::Facts(1, 1));
  control.Start(1);
  ComeAndGo(&control);
  control.Tick(absl::Milliseconds(1));
  CHECK(Members(control).all().size() == kEndedKept + 1);
  CHECK(Members(control).forgotten().count() == kMany - kEndedKept);
  CHECK(control.coordinator->Status(control.now).members_size() ==
        static_cast<int>(kEndedKept) + 1);
  CHECK(control.coordinator->Save().membership().members_size() ==
        static_cast<int>(kEndedKept) + 1);
  // The one that ended first is forgotten, the last one is not, nor is one that is here.
  CHECK(Members(control).Find(MemberId(2)) == nullptr);
  CHECK(Members(control).Find(MemberId(kMany + 1)) != nullptr);
  CHECK(Members(control).Find(MemberId(1)) != nullptr);
  CHECK(absl::IsFailedPrecondition(control.Renew(2).status()));
  CHECK(absl::IsFailedPrecondition(control.Join(2).status()));
  CHECK(control.Leave(2).ok());
  CHECK(absl::IsNotFound(control.Renew(kMany + 100).status()));
  CHECK(absl::IsNotFound(control.Leave(kMany + 100)));
  CHECK(control.Join()->member() == kMany + 2);
  control.Restart();
  CHECK(Members(control).forgotten().count() == kMany - kEndedKept);
  CHECK(control.Join()->member() == kMany + 3);
  CHECK(control.Renew(1).ok());
}

TEST_CASE("what is told of the job stays as it was when members are forgotten", "[forgotten]") {
  JobFacts facts = ControlFixture::Facts(2, 1);
  facts.epochs = 0;
  facts.steps = 100000;
  facts.synchronous = facts.aligned = false;
  ControlFixture control(facts);
  control.Start(1);
  constexpr uint64_t kWithPart = 60;
  for (uint64_t i = 0; i < kWithPart; ++i) {
    const uint64_t member = control.Join()->member();
    control.StepAll();
    REQUIRE(control.Join(member)->admitted());
    v1::RenewRequest renewal;
    renewal.set_member(member);
    renewal.mutable_progress()->set_step(i % 50);
    renewal.mutable_progress()->set_exchange(i % 50);
    renewal.mutable_progress()->set_examples(7);
    renewal.mutable_progress()->mutable_traffic()->set_exchanges(3);
    REQUIRE(control.Renew(renewal).ok());
    // Some servers have a push that others have not.
    control.servers[0].counted[member] = 1;
    control.servers[1].counted[member] = i % 3 == 0 ? 0 : 1;
    v1::LeaveRequest leave;
    leave.set_member(member);
    if (i % 2 == 0) {
      leave.mutable_report()->set_examples(11);
      leave.mutable_report()->set_exchanges(5);
      leave.mutable_report()->set_push_payload_bytes(13);
    }
    if (i % 5 == 0) leave.set_error("out of memory");
    REQUIRE(control.Leave(leave).ok());
    control.StepAll();
  }
  ComeAndGo(&control);
  const v1::JobStatus before = control.coordinator->Status(control.now);
  const Exchange reached = HighestExchange(Members(control));
  REQUIRE(before.members_size() == static_cast<int>(kWithPart + kMany) + 1);
  REQUIRE(before.partial_pushes() > 0);
  control.Tick(absl::Milliseconds(1));
  const v1::JobStatus after = control.coordinator->Status(control.now);
  CHECK(after.members_size() == static_cast<int>(kEndedKept) + 1);
  CHECK(Members(control).IsForgotten(MemberId(2)));
  CHECK(after.members_joined() == before.members_joined());
  CHECK(after.members_lost() == before.members_lost());
  CHECK(after.examples() == before.examples());
  CHECK(after.step() == before.step());
  CHECK(after.partial_pushes() == before.partial_pushes());
  CHECK(AllTraffic(after).SerializeAsString() == AllTraffic(before).SerializeAsString());
  CHECK(HighestExchange(Members(control)) == reached);
  control.Restart();
  CHECK(AllTraffic(control.coordinator->Status(control.now)).exchanges() ==
        AllTraffic(before).exchanges());
}

TEST_CASE("one that had made all its steps counts at the end, though it is forgotten",
          "[forgotten]") {
  JobFacts facts = ControlFixture::Facts(1, 2);
  facts.epochs = 0;
  facts.steps = 100;
  facts.synchronous = facts.aligned = false;
  ControlFixture control(facts);
  control.Start(2);
  REQUIRE(control.Renew(1, 100, 100).ok());
  REQUIRE(control.Leave(1).ok());
  control.StepAll();
  ComeAndGo(&control);
  control.Tick(absl::Milliseconds(1));
  REQUIRE(Members(control).IsForgotten(MemberId(1)));
  REQUIRE(control.Leave(2, "out of memory").ok());
  control.StepAll();
  CHECK(control.coordinator->ended());
  CHECK(control.coordinator->outcome().ok());
}

TEST_CASE("whoever is to join anew is known until it has had time to", "[forgotten]") {
  JobFacts facts = RejoinFacts();
  facts.rows_are_local = true;
  ControlFixture control(facts);
  control.Start(2);
  MakeCheckpoint(&control);
  for (uint64_t i = 0; i < kMany; ++i) REQUIRE(control.Join().ok());
  // Server 1 is replaced, and the job goes back.
  control.coordinator->Detach(ShardId(1), control.servers[1].hello.life(), control.now);
  control.servers[1].hello.set_life(900);
  REQUIRE(control.Attach(1).ok());
  REQUIRE(control.StateOf(1) == MemberState::kRejoins);
  control.StepAll();
  control.Tick(absl::Milliseconds(1));
  REQUIRE(Members(control).all().size() == kMany + 2);
  REQUIRE(control.Renew(1).ok());
  CHECK(control.Renew(1)->rejoin());
  const uint64_t again = control.Join(1)->member();
  CHECK(again == kMany + 3);
  for (int lease = 0; lease < 20; ++lease) {
    for (int i = 0; i < 2; ++i) {
      REQUIRE(control.Renew(again).ok());
      control.Heartbeat();
      control.Tick(control.coordinator->facts().lease_timeout * 0.9);
    }
  }
  CHECK(Members(control).all().size() == kEndedKept + 1);
}

TEST_CASE("while the job ends nobody is forgotten: the report has all that were there",
          "[forgotten]") {
  JobFacts facts = ControlFixture::Facts(1, 1);
  facts.synchronous = false;
  facts.rows_are_local = true;
  ControlFixture control(facts);
  control.Start(1);
  for (uint64_t i = 0; i < kMany; ++i) REQUIRE(control.Join().ok());
  control.coordinator->Drain("test", control.now);
  control.Tick(absl::Milliseconds(1));
  CHECK(Members(control).all().size() == kMany + 1);
}

}  // namespace
}  // namespace tessera
