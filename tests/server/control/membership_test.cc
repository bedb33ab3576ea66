#include <catch2/catch.hpp>

#include "common/base/log.h"
#include "server/control/members/join_check.h"
#include "tests/server/control/control_fixture.h"

namespace tessera {
namespace {

using Fixture = ControlFixture;

bool Mentions(const absl::Status& status, absl::string_view words) {
  return std::string(status.message()).find(std::string(words)) != std::string::npos;
}

TEST_CASE("a job says for whom it waits until all are there", "[control]") {
  Fixture f(Fixture::Facts(2, 2));
  REQUIRE(f.Attach(0).ok());
  auto reply = f.Join(0, 1);
  REQUIRE(reply.ok());
  CHECK(!reply->admitted());
  CHECK(Words(reply->waiting_for()) == "server 1, worker 0");
  REQUIRE(f.Attach(1).ok());
  CHECK(Words(f.Join(1)->waiting_for()) == "worker 0");
  CHECK(f.Join()->rank() == 0);
  // The plan is on its way: nobody is admitted before both servers have applied it.
  CHECK(Words(f.Join(1)->waiting_for()) == "server 0, server 1");
  REQUIRE(f.Step(0));
  CHECK(Words(f.Join(1)->waiting_for()) == "server 1");
  REQUIRE(f.Step(1));
  reply = f.Join(1);
  CHECK(reply->admitted());
  CHECK(reply->first_exchange() == 1);
  CHECK(reply->first_step() == 0);
  CHECK(Words(reply->servers()) == "server:7000, server:7001");
  CHECK(f.servers[0].plan.members(0).rank() == 0);
}

// Numbered from 1, two workers wait for ever.
TEST_CASE("a worker whose rank the job does not begin with is told so", "[control]") {
  Fixture f(Fixture::Facts(1, 2));
  REQUIRE(f.Attach(0).ok());
  CHECK(Words(f.Join(0, 1)->waiting_for()) == "worker 0");
  CHECK(Words(f.Join(0, 2)->waiting_for()) == "worker 0 (worker 2 joins once the job has begun)");
  CHECK(Words(f.coordinator->Status(f.now).waiting_for()) == "worker 0");
}

TEST_CASE("whoever has another job is told which keys differ", "[control]") {
  JobFacts facts = Fixture::Facts(1, 1);
  facts.job_text = "tessera job 1\nseed=7\ntrain.batch_size=16\n";
  Fixture f(facts);
  const std::string text = "tessera job 1\nseed=7\ntrain.batch_size=64\n";
  const std::string told =
      ": job digest is \"d2\", want \"d1\", as keys differ: train.batch_size is 64, want 16; start "
      "it with the same job file";
  v1::ServerHello hello = f.servers[0].hello;
  hello.set_job_digest("d2");
  hello.set_job_text(text);
  CHECK(f.coordinator->Attach(hello, f.now).message() == "server 0" + told);
  facts.standbys = true;
  v1::HostHello host;
  host.set_job_digest("d2");
  host.set_job_text(text);
  CHECK(Fixture(facts).coordinator->AttachHost(host, f.now).message() == "server 0" + told);
  facts.standbys = false;
  v1::JoinRequest join = Fixture::Wish(0);
  join.set_job_digest("d2");
  join.set_job_text(text);
  CHECK(f.coordinator->Join(join, f.now).status().message() == "join" + told);
  // As is whoever would go on from another job's state.
  v1::CoordinatorState state = f.coordinator->Save();
  CHECK(state.job_text() == facts.job_text);
  facts.digest = "d2";
  facts.job_text = text;
  const auto other = Coordinator::Load(facts, state);
  CHECK(Mentions(other.status(), "train.batch_size is 16, want 64"));
}

TEST_CASE("one that was asked to leave has not finished, and a report says whose it is",
          "[control]") {
  Fixture f(Fixture::Facts(1, 2));
  f.Start(2);
  for (const uint64_t member : {2, 1}) {
    v1::LeaveRequest leave;
    leave.set_member(member);
    leave.set_was_asked(member == 2);
    leave.mutable_report()->set_member(77);
    leave.mutable_report()->set_version(std::string(9999, 'v'));
    REQUIRE(f.Leave(leave).ok());
    const MemberRecord* const record = f.coordinator->membership().members().Find(MemberId(member));
    REQUIRE(record != nullptr);
    CHECK(record->state == MemberState::kLeft);
    CHECK(record->ended == (member == 2 ? "it was asked to leave" : "finished"));
  }
  const v1::JobStatus status = f.coordinator->Status(f.now);
  REQUIRE(status.worker_reports_size() == 2);
  for (int i = 0; i < 2; ++i) {
    CHECK(status.worker_reports(i).member() == static_cast<uint64_t>(i) + 1);
    CHECK(status.worker_reports(i).version().size() < 1000);
  }
}

TEST_CASE("strangers are refused with both values", "[control]") {
  Fixture f(Fixture::Facts(1, 1));
  v1::ServerHello hello = f.servers[0].hello;
  hello.set_job_digest("d2");
  CHECK(f.coordinator->Attach(hello, f.now).message() ==
        "server 0: job digest is \"d2\", want \"d1\"; start it with the same job file");
  hello.set_job_text("seed=1\n");
  // Its own is not known, nor what a process of an older build has.
  CHECK(Mentions(f.coordinator->Attach(hello, f.now), "want \"d1\"; start it"));
  hello = f.servers[0].hello;
  hello.set_layout_hash(78);
  CHECK(Mentions(f.coordinator->Attach(hello, f.now), "000000000000004e, want 000000000000004d"));
  hello = f.servers[0].hello;
  hello.set_rank(1);
  CHECK(Mentions(f.coordinator->Attach(hello, f.now), "want one in [0, 1)"));
  REQUIRE(f.Attach(0).ok());
  hello = f.servers[0].hello;
  hello.set_life(999);
  CHECK(absl::IsAlreadyExists(f.coordinator->Attach(hello, f.now)));

  v1::JoinRequest join;
  join.set_protocol(kControlProtocol);
  join.set_job_digest("d2");
  CHECK(Mentions(f.coordinator->Join(join, f.now).status(), "\"d2\", want \"d1\""));
  join.set_job_digest(std::string(9999, 'x'));
  CHECK(Mentions(f.coordinator->Join(join, f.now).status(),
                 "\"" + std::string(64, 'x') + "\", want"));
  join.set_job_digest("d1");
  join.set_layout_hash(78);
  CHECK(Mentions(f.coordinator->Join(join, f.now).status(), "layout hash is 000000000000004e"));
  join.set_layout_hash(77);
  CHECK(Mentions(f.coordinator->Join(join, f.now).status(), "rows are 0"));
  join.set_rows(5);
  join.set_rank(70000);
  CHECK(Mentions(f.coordinator->Join(join, f.now).status(), "rank is 70000"));
  join.set_rank(0);
  join.set_life(4);
  REQUIRE(f.coordinator->Join(join, f.now).ok());
  CHECK(f.coordinator->Join(join, f.now)->member() == 1);  // The same process asks again.
  join.set_life(5);
  CHECK(absl::IsAlreadyExists(f.coordinator->Join(join, f.now).status()));
  join.set_rank(1);
  join.set_rows(6);
  CHECK(Mentions(f.coordinator->Join(join, f.now).status(), "training rows are 6, want 5"));
  CHECK(absl::IsNotFound(f.Renew(9).status()));
  CHECK(absl::IsNotFound(f.Leave(9)));
}

// With local rows nothing compared them: one worker's bytes were divided by 255, and another's floats were not.
TEST_CASE("workers whose values are of two kinds are refused, with local rows too", "[control]") {
  for (const bool local : {false, true}) {
    CAPTURE(local);
    JobFacts facts = Fixture::Facts(1, 3);
    facts.rows_are_local = local;
    Fixture f(facts);
    REQUIRE(f.Attach(0).ok());
    v1::JoinRequest join = Fixture::Wish(0);
    join.set_life(1);
    join.set_description("host:7");
    join.set_values(v1::VALUES_BYTES);
    REQUIRE(f.Join(join).ok());
    join.set_rank(1);
    join.set_life(2);
    join.set_values(v1::VALUES_NUMBERS);
    const absl::Status status = f.Join(join).status();
    CHECK(absl::IsInvalidArgument(status));
    CHECK(Mentions(
        status,
        "join: its data are numbers that are taken as they are, want bytes, which are divided "
        "by 255, as those of worker 0 (host:7) are: one model would see rows on two scales; "
        "save all files as one type"));
    join.set_values(v1::VALUES_BYTES);
    CHECK(f.Join(join).ok());
    join.set_rank(2);
    join.set_life(3);
    join.set_values(v1::VALUES_UNKNOWN);
    CHECK(f.Join(join).ok());
  }
}

TEST_CASE("a coordinator that is begun again knows the kind of its workers' values", "[control]") {
  JobFacts facts = Fixture::Facts(1, 2);
  facts.rows_are_local = true;
  facts.digest = "d1";
  facts.layout_hash = 77;
  MemberTable before(facts), after(facts);
  v1::JoinRequest join = Fixture::Wish(0);
  join.set_values(v1::VALUES_BYTES);
  REQUIRE(JoinCheck(facts, before).Check(join, absl::UnixEpoch()).ok());
  before.Add(join, Rank(0), absl::UnixEpoch());
  v1::MembershipState state;
  before.Save(&state);
  REQUIRE(after.Load(state).ok());
  join.set_rank(1);
  join.set_values(v1::VALUES_NUMBERS);
  const absl::Status checked = JoinCheck(facts, after).Check(join, absl::UnixEpoch()).status();
  CHECK(Mentions(checked, "want bytes"));
}

TEST_CASE("a silent worker loses its lease and the others get a plan without it", "[control]") {
  Fixture f(Fixture::Facts(2, 2));
  f.Start(2);
  for (int i = 0; i < 11; ++i) {
    f.now += absl::Seconds(1);
    f.Heartbeat();
    REQUIRE(f.Renew(1).ok());
    f.Tick(absl::ZeroDuration());
  }
  CHECK(f.StateOf(2) == MemberState::kLost);
  f.StepAll();
  REQUIRE(f.servers[1].plan.members_size() == 1);
  CHECK(f.servers[1].plan.members(0).member() == 1);
  const absl::Status late = f.Renew(2).status();
  CHECK(absl::IsFailedPrecondition(late));
  CHECK(Mentions(late, "last heard 11s before its lease of 10s"));
  // Its rank is free, its id is not.
  auto again = f.Join();
  CHECK(again->rank() == 1);
  CHECK(again->member() == 3);
}

TEST_CASE("a worker that waits for the start has a lease too", "[control]") {
  Fixture f(Fixture::Facts(1, 2));
  REQUIRE(f.Join().ok());
  f.Tick(absl::Seconds(6));
  REQUIRE(f.Join(1).ok());
  f.Tick(absl::Seconds(6));
  CHECK(f.Join(1).ok());
  f.Tick(absl::Seconds(11));
  CHECK(absl::IsFailedPrecondition(f.Join(1).status()));
  CHECK(Words(f.Join()->waiting_for()) == "server 0, worker 1");
}

TEST_CASE("a late worker is admitted at an exchange that no server has passed", "[control]") {
  JobFacts facts = Fixture::Facts(2, 1);
  facts.local_steps = 5;
  facts.epochs = 100;
  Fixture f(facts);
  f.Start(1);
  f.servers[0].collecting = 4;
  f.servers[1].collecting = 9;
  REQUIRE(f.Renew(1, 3).ok());
  auto reply = f.Join();
  CHECK(!reply->admitted());
  CHECK(f.StateOf(2) == MemberState::kProposed);
  REQUIRE(f.Step(0));
  CHECK(Words(f.Join(2)->waiting_for()) == "server 1");
  REQUIRE(f.Step(1));  // It answers with a later exchange: all are asked again.
  CHECK(f.StateOf(2) == MemberState::kProposed);
  REQUIRE(f.Step(0));
  REQUIRE(f.Step(1));
  CHECK(f.StateOf(2) == MemberState::kPlanned);
  REQUIRE(f.Step(0));
  CHECK(!f.Join(2)->admitted());
  REQUIRE(f.Step(1));
  reply = f.Join(2);
  REQUIRE(reply->admitted());
  CHECK(reply->first_exchange() >= 11);
  CHECK(reply->first_step() == (reply->first_exchange() - 1) * 5);
  CHECK(f.servers[0].held.empty());
  CHECK(f.servers[1].held.empty());
}

TEST_CASE("a joiner that dies while servers are asked is withdrawn and the next one is asked for",
          "[control]") {
  Fixture f(Fixture::Facts(2, 1));
  f.Start(1);
  REQUIRE(f.Join().ok());
  REQUIRE(f.Join().ok());
  CHECK(Words(f.Join(3)->waiting_for()) == "worker 1 to be admitted first");
  REQUIRE(f.Step(0));
  CHECK(f.servers[0].held.size() == 1);
  REQUIRE(f.Leave(2, "changed its mind").ok());
  f.StepAll();
  CHECK(f.StateOf(3) == MemberState::kAdmitted);
  CHECK(f.servers[0].held.empty());
  CHECK(f.servers[1].held.empty());
}

TEST_CASE(
    "a worker that joins before a lost one's part ends is told which servers are asked for that",
    "[control]") {
  JobFacts facts = Fixture::Facts(2, 2);
  facts.subnets = true;
  Fixture f(facts);
  f.Start(2);
  REQUIRE(f.Leave(2, "gone").ok());
  // Both know the plan without it, but only one has answered from when on nobody has its part.
  while (f.Step(0)) {
  }
  REQUIRE(f.Step(1));
  CHECK(f.servers[1].plan.members_size() == 1);
  const auto reply = f.Join();
  REQUIRE(reply.ok());
  CHECK(Words(reply->waiting_for()) == "server 1");
  f.StepAll();
  CHECK(f.Join(reply->member())->admitted());
}

TEST_CASE("without a barrier a late worker begins at the least step of the others", "[control]") {
  JobFacts facts = Fixture::Facts(1, 2);
  facts.synchronous = false;
  facts.epochs = 100;
  facts.local_steps = 2;
  Fixture f(facts);
  f.Start(2);
  REQUIRE(f.Renew(1, 20, 40).ok());
  REQUIRE(f.Renew(2, 15, 30).ok());
  REQUIRE(f.Join().ok());
  f.StepAll();
  CHECK(f.Join(3)->first_step() == 30);
  CHECK(f.Join(3)->first_exchange() == 16);
}

TEST_CASE("servers that counted different pushes of a lost worker are a partial push",
          "[control]") {
  Fixture f(Fixture::Facts(2, 3));
  f.Start(3);
  f.servers[0].counted = {{2, 7}, {3, 8}};
  f.servers[1].counted = {{2, 6}, {3, 8}};
  REQUIRE(f.Leave(2, "died").ok());
  REQUIRE(f.Leave(3, "died").ok());
  f.StepAll();
  CHECK(f.coordinator->membership().partial_pushes() == 1);
}

TEST_CASE("who takes a shard over says what of a removed member is there, whatever was said before",
          "[control]") {
  Fixture f(Fixture::Facts(2, 3));
  f.Start(3);
  f.servers[0].counted = {{2, 7}, {3, 8}};
  f.servers[1].counted = {{2, 7}, {3, 7}};
  REQUIRE(f.Leave(2, "died").ok());
  REQUIRE(f.Leave(3, "died").ok());
  f.StepAll();
  const Membership& membership = f.coordinator->membership();
  CHECK(membership.partial_pushes() == 1);
  // Its leader had folded more than its standby has.
  v1::ShardMessage message;
  v1::PlanApplied& applied = *message.mutable_applied();
  applied.set_generation(membership.generation().value());
  const auto says = [&](uint64_t member, uint64_t exchange) {
    applied.clear_removed();
    v1::PlanApplied::Removed& removed = *applied.add_removed();
    removed.set_member(member);
    removed.set_last_exchange(exchange);
    f.coordinator->OnShardMessage(ShardId(0), message, f.now);
  };
  says(2, 6);
  CHECK(membership.partial_pushes() == 2);
  says(3, 7);
  CHECK(membership.partial_pushes() == 1);
  const auto loaded = Coordinator::Load(f.coordinator->facts(), f.coordinator->Save());
  REQUIRE(loaded.ok());
  CHECK((*loaded)->membership().partial_pushes() == 1);
}

TEST_CASE("what the codec of a removed worker had held back is counted as lost", "[control]") {
  for (const bool holds_back : {true, false}) {
    JobFacts facts = Fixture::Facts(1, 3);
    facts.holds_back = holds_back;
    Fixture f(facts);
    f.Start(3);
    REQUIRE(f.Leave(1).ok());
    f.StepAll();
    CHECK(f.coordinator->membership().residuals_lost() == 0);
    REQUIRE(f.Leave(2, "died").ok());
    // One that has not begun holds nothing back.
    const auto late = f.Join();
    REQUIRE(late.ok());
    REQUIRE(f.Leave(late->member(), "died").ok());
    f.StepAll();
    CHECK(f.coordinator->membership().residuals_lost() == (holds_back ? 1 : 0));
    // One that is asked to leave says what becomes of it.
    v1::LeaveRequest leave;
    leave.set_member(3);
    leave.set_residual_lost(true);
    for (int i = 0; i < 2; ++i) REQUIRE(f.coordinator->Leave(leave, f.now).ok());
    f.StepAll();
    CHECK(f.coordinator->membership().residuals_lost() == (holds_back ? 2 : 0));
    const v1::JobStatus status = f.coordinator->Status(f.now);
    CHECK(status.has_residuals_lost() == holds_back);
    const auto loaded = Coordinator::Load(f.coordinator->facts(), f.coordinator->Save());
    REQUIRE(loaded.ok());
    CHECK((*loaded)->Status(f.now).residuals_lost() == status.residuals_lost());
  }
}

TEST_CASE("a lost server fails the job, and every worker hears why", "[control]") {
  Fixture f(Fixture::Facts(2, 1));
  f.Start(1);
  for (int i = 0; i < 11; ++i) {
    f.now += absl::Seconds(1);
    v1::ShardMessage alive;
    alive.mutable_counters();
    f.coordinator->OnShardMessage(ShardId(0), alive, f.now);
    if (i < 10) REQUIRE(f.Renew(1).ok());
    f.Tick(absl::ZeroDuration());
  }
  CHECK(!f.coordinator->ended());
  const absl::Status told = f.Renew(1).status();
  CHECK(absl::IsFailedPrecondition(told));
  CHECK(Mentions(told, "server 1 is gone: last heard 11s ago"));
  f.StepAll();
  CHECK(f.servers[0].drained);
  // Nobody waits for server 1's last words.
  CHECK(f.coordinator->ended());
  CHECK(!f.coordinator->outcome().ok());
  CHECK(f.coordinator->Status(f.now).report_json().find("\"failed\"") != std::string::npos);
}

TEST_CASE("a server that was restarted ends the job, one that connects anew goes on", "[control]") {
  Fixture f(Fixture::Facts(1, 1));
  f.Start(1);
  f.coordinator->Detach(ShardId(0), 100, f.now);
  REQUIRE(f.Attach(0).ok());
  REQUIRE(f.servers[0].inbox.size() == 1);
  CHECK(f.servers[0].inbox[0].plan().generation() == 1);
  f.StepAll();
  f.coordinator->Detach(ShardId(0), 100, f.now);
  f.servers[0].hello.set_life(5);
  CHECK(absl::IsFailedPrecondition(f.Attach(0)));
  CHECK(Mentions(f.Renew(1).status(), "its parameters are lost"));
  CHECK(Mentions(f.Renew(1).status(), "checkpoint.directory would have kept them"));
}

TEST_CASE("a job ends well if one worker finished, whatever became of the others", "[control]") {
  Fixture f(Fixture::Facts(1, 3));
  f.Start(3);
  REQUIRE(f.Leave(1, "out of memory").ok());
  REQUIRE(f.Leave(2).ok());
  REQUIRE(f.Leave(2).ok());  // A repeated call.
  f.Tick(absl::Seconds(5));
  f.Heartbeat();
  CHECK(!f.servers[0].drained);
  REQUIRE(f.Leave(3).ok());
  f.StepAll();
  CHECK(f.coordinator->ended());
  CHECK(f.coordinator->outcome().ok());
  const v1::JobStatus status = f.coordinator->Status(f.now);
  CHECK(status.members_joined() == 3);
  CHECK(status.members_lost() == 1);
  CHECK(status.state() == "done");
  CHECK(absl::IsFailedPrecondition(f.Join().status()));
}

TEST_CASE("a job fails if all workers are lost", "[control]") {
  Fixture f(Fixture::Facts(1, 2));
  f.Start(2);
  REQUIRE(f.Leave(1, "disk full").ok());
  REQUIRE(f.Leave(2, "disk full too").ok());
  f.StepAll();
  CHECK(f.coordinator->ended());
  CHECK(Mentions(f.coordinator->outcome(), "disk full too"));
}

TEST_CASE("a worker that waits to join carries on when all others are lost", "[control]") {
  JobFacts facts = Fixture::Facts(1, 1);
  facts.epochs = 100;
  Fixture f(facts);
  f.Start(1);
  REQUIRE(f.Renew(1, 5).ok());
  REQUIRE(f.Join().ok());
  REQUIRE(f.Leave(1, "killed").ok());
  f.StepAll();
  CHECK(f.StateOf(2) == MemberState::kAdmitted);
  CHECK(f.Join(2)->first_exchange() == 7);
}

TEST_CASE("a worker that did not hear that it takes part asks again though the job ends",
          "[control]") {
  Fixture f(Fixture::Facts(1, 1));
  REQUIRE(f.Attach(0).ok());
  v1::JoinRequest join = Fixture::Wish(0);
  join.set_life(4);
  REQUIRE(f.Join(join).ok());
  f.StepAll();
  f.coordinator->Drain("test", f.now);
  const absl::StatusOr<v1::JoinReply> again = f.Join(join);
  REQUIRE(again.ok());
  CHECK(again->member() == 1);
  CHECK(again->admitted());
  join.set_life(5);
  CHECK(absl::IsFailedPrecondition(f.Join(join).status()));
}

TEST_CASE("a drain stops all workers after the same exchange", "[control]") {
  Fixture f(Fixture::Facts(2, 2));
  f.Start(2);
  f.servers[0].collecting = f.servers[1].collecting = 5;
  REQUIRE(f.Renew(1, 4).ok());
  f.coordinator->Drain("test", f.now);
  CHECK(f.Renew(1, 4)->drain_exchange() == 0);
  f.StepAll();
  const uint64_t stop = f.Renew(1, 4)->drain_exchange();
  CHECK(stop == 6);
  f.StepAll();
  // Both have to know before any server may commit it.
  CHECK(f.Renew(2, 4, 0, 0)->drain_exchange() == stop);
  REQUIRE(f.Renew(1, 4, 0, stop).ok());
  f.StepAll();
  CHECK(f.servers[0].held.size() == 1);
  REQUIRE(f.Renew(2, 4, 0, stop).ok());
  f.StepAll();
  CHECK(f.servers[0].held.empty());
  CHECK(f.servers[1].held.empty());
  CHECK(absl::IsFailedPrecondition(f.Join().status()));
}

}  // namespace
}  // namespace tessera
