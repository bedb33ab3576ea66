// What LiveCoordinator adds to the state machine: nothing is sent that is not kept, runs and terms.
#include "server/rpc/live_coordinator.h"

#include <algorithm>
#include <atomic>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "common/base/steady_clock.h"
#include "tests/server/rpc/live_coordinator_fixture.h"

namespace tessera {
namespace {

TEST_CASE("the term is kept before anybody hears of it, and every connection begins with it",
          "[control][live]") {
  LiveCoordinatorFixture f;
  CHECK(absl::IsUnavailable(f.Attach()));
  f.Install(Word(9, 3));
  CHECK(f.store.kept().run() == 9);
  CHECK(f.store.kept().term() == 3);
  REQUIRE(f.Attach().ok());
  const auto inbox = f.inbox.Await(1);
  CHECK(inbox[0]->word().term() == 3);
  CHECK(inbox[0]->word().run() == 9);
}

TEST_CASE("a connection that another one of its server replaces is ended", "[control][live]") {
  LiveCoordinatorFixture f;
  f.Install(Word(9, 3));
  REQUIRE(f.Attach().ok());
  int other = 0;
  REQUIRE(f.AttachAs(&other, [](const v1::PlanMessage*) {}).ok());
  CHECK_FALSE(f.inbox.Await(2)[1].has_value());
}

TEST_CASE("a state is written when others may go by it, and not when nothing changes",
          "[control][live]") {
  LiveCoordinatorFixture f;
  f.Install(Word(9, 1));
  REQUIRE(f.Attach().ok());
  const auto joined = f.Join();
  REQUIRE(joined.ok());
  // The plan that followed has been kept: it was sent.
  CHECK(f.store.kept().membership().members_size() == 1);
  CHECK(f.store.kept().membership().generation() == 1);
  CHECK(f.inbox.Await(2)[1]->plan().generation() == 1);
  const int writes = f.store.writes();
  for (int i = 0; i < 10; ++i) {
    v1::RenewRequest request;
    request.set_member(1);
    request.mutable_progress()->set_step(i);
    CHECK(f.live
              .Run(9, [&](Coordinator& coordinator,
                          absl::Time now) { return coordinator.Renew(request, now); })
              .ok());
    v1::ShardMessage message;
    message.mutable_counters()->set_version(i);
    f.live.OnShardMessage(f.hello, &f, message);
    REQUIRE(f.Join(9, 1).ok());
  }
  CHECK(f.store.writes() == writes);
}

TEST_CASE("what cannot be kept is not sent, and the coordinator is gone", "[control][live]") {
  LiveCoordinatorFixture f;
  f.Install(Word(9, 1));
  REQUIRE(f.Attach().ok());
  Heard<absl::Status> vacated;
  f.live.SetOnVacated([&](absl::Status why) { vacated.Add(why); });
  f.inbox.Clear();
  f.store.Fail(absl::AbortedError("another one has taken over"));
  const auto joined = f.Join();
  CHECK(absl::IsUnavailable(joined.status()));
  vacated.Await(1);
  CHECK_FALSE(f.live.is_here());
  // No plan: only that the connection is to end.
  const auto inbox = f.inbox.Await(1);
  REQUIRE(inbox.size() == 1);
  CHECK_FALSE(inbox[0].has_value());
  CHECK(absl::IsUnavailable(f.Attach()));
}

TEST_CASE("who vacates the coordinator waits until those are told that its store has vacated it",
          "[control][live]") {
  LiveCoordinatorFixture f;
  f.Install(Word(9, 1));
  absl::Notification telling;
  std::atomic<bool> has_told{false};
  f.live.SetOnVacated([&](absl::Status why) {
    f.live.Vacate("it need not wait for itself");
    telling.Notify();
    absl::SleepFor(absl::Milliseconds(200));
    has_told = true;
  });
  f.store.Fail(absl::AbortedError("another one has taken over"));
  CHECK(absl::IsUnavailable(f.Join().status()));
  telling.WaitForNotification();
  f.live.Vacate("the server ends");
  CHECK(has_told);
}

TEST_CASE("one that may have been superseded answers nobody", "[control][live]") {
  LiveCoordinatorFixture f;
  f.Install(Word(9, 1));
  f.store.held = false;
  CHECK(absl::IsUnavailable(f.Attach()));
  CHECK(absl::IsUnavailable(f.Join().status()));
  f.store.held = true;
  CHECK(f.Attach().ok());
}

TEST_CASE("whoever is of another run, or has heard of a later term, is refused",
          "[control][live]") {
  LiveCoordinatorFixture f;
  f.Install(Word(9, 2));
  CHECK(absl::IsFailedPrecondition(f.Join(8).status()));
  CHECK(f.Join(9).ok());
  f.hello.set_run(8);
  CHECK(absl::IsFailedPrecondition(f.Attach()));
  f.hello.set_run(9);
  f.hello.set_term(3);
  CHECK(absl::IsUnavailable(f.Attach()));
  f.hello.set_term(2);
  CHECK(f.Attach().ok());
}

TEST_CASE("evaluations that wait are answered when the coordinator goes", "[control][live]") {
  LiveCoordinatorFixture f;
  f.Install(Word(9, 1));
  REQUIRE(f.Attach().ok());
  REQUIRE(f.Join().ok());
  v1::ShardMessage applied;
  applied.mutable_applied()->set_generation(1);
  f.live.OnShardMessage(f.hello, &f, applied);
  REQUIRE(f.Join(9, 1)->admitted());
  v1::EvaluateRequest request;
  request.set_member(1);
  Heard<absl::Status> answers;
  const auto done = [&](absl::StatusOr<v1::EvaluateReply> reply) { answers.Add(reply.status()); };
  f.live.Evaluate(request, &f, done);
  CHECK(answers.Await(1)[0].ok());  // The only one there.
  request.set_stage(v1::SCORE);
  request.set_evaluation(1);
  request.set_attempt(1);
  f.store.Fail(absl::UnavailableError("etcd is away"));
  f.live.Evaluate(request, &f, done);
  CHECK(absl::IsUnavailable(answers.Await(2)[1]));
  CHECK_FALSE(f.live.is_here());
  f.live.Evaluate(request, &f, done);
  CHECK(absl::IsUnavailable(answers.Await(3)[2]));
}

TEST_CASE("while a state is written others are heard, and one write keeps all that they change",
          "[control][live]") {
  LiveCoordinatorFixture f(4);
  f.Install(Word(9, 1));
  REQUIRE(f.Attach().ok());
  const int before = f.store.writes();
  f.store.Hang(true);
  Heard<uint64_t> joined;
  std::vector<std::thread> callers;
  for (int i = 0; i < 4; ++i) {
    callers.emplace_back([&] { joined.Add(f.Join()->member()); });
  }
  const absl::Time deadline = SteadyNow() + absl::Seconds(10);
  while (f.live.Status().members_size() < 4 && SteadyNow() < deadline) {
    absl::SleepFor(absl::Milliseconds(1));
  }
  CHECK(f.live.Status().members_size() == 4);
  // The store may not lag: nobody is told, however long it takes.
  absl::SleepFor(2 * kKeepPatience);
  CHECK(joined.size() == 0);
  CHECK(f.inbox.size() == 1);
  f.store.Hang(false);
  for (std::thread& caller : callers) caller.join();
  CHECK(joined.size() == 4);
  CHECK(f.store.kept().membership().members_size() == 4);
  // The first one, and one of all who came meanwhile; or one more, where that had just begun.
  CHECK(f.store.writes() <= before + 3);
}

TEST_CASE("a store that may lag and is slow holds nobody up, and words say what was told",
          "[control][live]") {
  LiveCoordinatorFixture f(2);
  f.store.may_lag = true;
  f.Install(Word(9, 1));
  REQUIRE(f.Attach().ok());
  const uint64_t kept = f.store.kept().changes();
  CHECK(f.live.WordForWorkers().changes() >= kept);
  f.store.Hang(true);
  const absl::Time began = SteadyNow();
  REQUIRE(f.Join().ok());
  CHECK(SteadyNow() - began >= kKeepPatience);
  const uint64_t told = f.live.WordForWorkers().changes();
  CHECK(told > f.store.kept().changes());
  CHECK(f.live.Status().coordinator().store() == "memory (late: its disk is slow)");
  // From now on nobody waits, and servers hear of it first.
  f.inbox.Clear();
  REQUIRE(f.Join().ok());
  const auto inbox = f.inbox.Await(2);
  CHECK(inbox[0]->word().changes() == f.live.WordForWorkers().changes());
  CHECK(inbox[1]->has_plan());
  f.store.Hang(false);
  const absl::Time deadline = SteadyNow() + absl::Seconds(10);
  while (f.live.Status().coordinator().store() != "memory" && SteadyNow() < deadline) {
    f.live.OnShardMessage(f.hello, &f, {});
    absl::SleepFor(absl::Milliseconds(1));
  }
  CHECK(f.store.kept().changes() == f.live.WordForWorkers().changes());
  CHECK(f.store.kept().membership().members_size() == 2);
}

TEST_CASE("who was told what was not kept ends the job", "[control][live]") {
  LiveCoordinatorFixture f;
  v1::CoordinatorWord word = Word(9, 2);
  word.set_changes(100);
  f.Install(word);
  f.hello.set_run(9);
  f.hello.set_term(1);
  f.hello.set_changes(100);
  REQUIRE(f.Attach().ok());
  CHECK(f.live.WordForWorkers().changes() > 100);
  f.live.Detach(f.hello, &f);
  // What it heard in this term is no news.
  f.hello.set_term(2);
  f.hello.set_changes(f.live.WordForWorkers().changes());
  REQUIRE(f.Attach().ok());
  f.live.Detach(f.hello, &f);
  f.hello.set_term(1);
  f.hello.set_changes(101);
  const absl::Status refused = f.Attach();
  CHECK(absl::IsFailedPrecondition(refused));
  CHECK(std::string(refused.message()).find("its disk was too slow") != std::string::npos);
  CHECK_FALSE(f.live.outcome().ok());
}

TEST_CASE("an answer that waits to be kept is not given to a later call", "[control][live]") {
  LiveCoordinatorFixture f;
  f.Install(Word(9, 1));
  REQUIRE(f.Attach().ok());
  REQUIRE(f.Join().ok());
  v1::ShardMessage applied;
  applied.mutable_applied()->set_generation(1);
  f.live.OnShardMessage(f.hello, &f, applied);
  REQUIRE(f.Join(9, 1)->admitted());
  v1::EvaluateRequest request;
  request.set_member(1);
  Heard<absl::StatusOr<v1::EvaluateReply>> first, second;
  f.live.Evaluate(request, &f, [&](absl::StatusOr<v1::EvaluateReply> reply) { first.Add(reply); });
  REQUIRE(first.Await(1)[0].ok());
  first.Clear();
  f.store.Hang(true);
  request.set_evaluation(1);
  request.set_attempt(1);
  request.set_stage(v1::CALIBRATE);
  request.set_constants("mu and sigma");
  f.live.Evaluate(request, &first,
                  [&](absl::StatusOr<v1::EvaluateReply> reply) { first.Add(reply); });
  // Its connection breaks, and the next call comes.
  request.set_stage(v1::SCORE);
  request.mutable_scores()->set_rows(1);
  request.mutable_scores()->set_correct(1);
  f.live.Evaluate(request, &second,
                  [&](absl::StatusOr<v1::EvaluateReply> reply) { second.Add(reply); });
  CHECK(absl::IsAborted(first.Await(1)[0].status()));
  CHECK(second.size() == 0);
  f.store.Hang(false);
  const absl::StatusOr<v1::EvaluateReply> scored = second.Await(1)[0];
  REQUIRE(scored.ok());
  CHECK(scored->constants().empty());
  CHECK(scored->test_accuracy() == 1);
}

// A host's process on its connection.
struct HostProcess {
  explicit HostProcess(uint32_t rank, uint64_t life) {
    hello.set_rank(rank);
    hello.set_job_digest("d1");
    hello.set_layout_hash(77);
    hello.set_life(life);
    hello.set_address(absl::StrCat("host-", rank, "-", life));
  }
  absl::Status Attach(LiveCoordinator* live) {
    const auto hear = [this](const v1::HostOrder* order) {
      if (order != nullptr) return inbox.Add(*order);
      was_ended = true;
    };
    return Await([&](LiveCoordinator::StatusDone done) {
      live->AttachHost(hello, this, hear, std::move(done));
    });
  }
  bool Leads(const v1::HostOrder& order, uint32_t shard) const {
    return std::any_of(order.shards().begin(), order.shards().end(), [shard](const auto& role) {
      return role.shard() == shard && role.role() == v1::LEAD;
    });
  }
  v1::HostHello hello;
  Heard<v1::HostOrder> inbox;
  std::atomic<bool> was_ended{false};
};

TEST_CASE(
    "a connection that ends while the coordinator may have been superseded is told nothing more",
    "[control][live]") {
  LiveCoordinatorFixture f;
  f.Install(Word(9, 1));
  REQUIRE(f.Attach().ok());
  f.inbox.Await(1);
  f.inbox.Clear();
  f.store.held = false;
  f.live.Detach(f.hello, &f);
  // Whoever is connected is told that it goes.
  f.live.Vacate("another one has taken over");
  CHECK(f.inbox.size() == 0);
}

TEST_CASE("so is a host's", "[control][live]") {
  LiveCoordinatorFixture f;
  JobFacts facts = Facts();
  facts.standbys = true;
  facts.servers = 2;
  auto coordinator = Coordinator::Create(std::move(facts), SteadyNow());
  REQUIRE(f.live.Install(*std::move(coordinator), Word(9, 1), &f.store).ok());
  HostProcess gone(0, 1), stays(1, 2);
  REQUIRE(gone.Attach(&f.live).ok());
  REQUIRE(stays.Attach(&f.live).ok());
  f.store.held = false;
  f.live.DetachHost(gone.hello, &gone);
  f.live.Vacate("another one has taken over");
  CHECK_FALSE(gone.was_ended);
  CHECK(stays.was_ended);
}

TEST_CASE("what waits to be told to a host is not told to another process of its rank",
          "[control][live]") {
  LiveCoordinatorFixture f;
  JobFacts facts = Facts();
  facts.servers = 2;
  facts.standbys = true;
  auto coordinator = Coordinator::Create(std::move(facts), SteadyNow());
  REQUIRE(f.live.Install(*std::move(coordinator), Word(9, 1), &f.store).ok());
  HostProcess zero(0, 1), one(1, 2), next_zero(0, 3), next_one(1, 4);
  REQUIRE(zero.Attach(&f.live).ok());
  REQUIRE(one.Attach(&f.live).ok());
  // Host 1 could take over shard 0.
  v1::HostMessage in_sync;
  v1::LeaderReport& report = *in_sync.add_leads();
  report.set_shard(0);
  report.set_term(f.live.Status().owners(0).term());
  report.set_in_sync(true);
  f.live.OnHostMessage(zero.hello, &zero, in_sync);
  REQUIRE(f.live.Status().owners(0).in_sync());

  // Host 0 is gone, and so is host 1 before it can hear that it is to lead.
  f.store.Hang(true);
  f.live.DetachHost(zero.hello, &zero);
  std::thread first([&] { (void)next_zero.Attach(&f.live); });
  const absl::Time deadline = SteadyNow() + absl::Seconds(10);
  while (f.live.Status().owners(0).leader() != 1 && SteadyNow() < deadline) {
    absl::SleepFor(absl::Milliseconds(1));
  }
  CHECK(f.live.Status().owners(0).leader() == 1);
  f.live.DetachHost(one.hello, &one);
  std::thread second([&] { (void)next_one.Attach(&f.live); });
  while (f.live.Status().owners(0).leader() != 0 && SteadyNow() < deadline) {
    absl::SleepFor(absl::Milliseconds(1));
  }
  f.store.Hang(false);
  first.join();
  second.join();
  for (const v1::HostOrder& order : next_one.inbox.Await(1)) {
    CHECK_FALSE(next_one.Leads(order, 0));
    CHECK(next_one.Leads(order, 1));
  }
}

}  // namespace
}  // namespace tessera
