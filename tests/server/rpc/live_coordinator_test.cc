// What LiveCoordinator adds to the state machine: nothing is sent that is not kept, runs and terms.
#include "server/rpc/live_coordinator.h"

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "absl/time/clock.h"
#include "common/base/steady_clock.h"
#include "common/base/log.h"
#include "common/rpc/control_protocol.h"

namespace tessera {
namespace {

JobFacts Facts() {
  JobFacts facts;
  facts.name = "tiny";
  facts.digest = "d1";
  facts.layout_hash = 77;
  facts.servers = 1;
  facts.workers = 1;
  facts.lease_timeout = absl::Seconds(60);
  facts.epochs = 2;
  facts.batch_size = 10;
  return facts;
}

v1::CoordinatorWord Word(uint64_t run, uint64_t term) {
  v1::CoordinatorWord word;
  word.set_run(run);
  word.set_term(term);
  word.set_away_timeout_ns(1000);
  return word;
}

// In memory; fails when told to.
class FakeStore final : public StateStore {
 public:
  absl::Status Write(const v1::CoordinatorState& state) override {
    ++writes;
    if (!fails.ok()) return fails;
    kept = state;
    return absl::OkStatus();
  }
  bool IsHeld(absl::Time now) const override { return held; }
  std::string Describe() const override { return "memory"; }

  int writes = 0;
  absl::Status fails;
  bool held = true;
  v1::CoordinatorState kept;
};

class Fixture {
 public:
  Fixture() : live(absl::Seconds(60)) {
    SetLogLevel(LogLevel::kError);
    hello.set_rank(0);
    hello.set_job_digest("d1");
    hello.set_layout_hash(77);
    hello.set_life(5);
    hello.set_address("server:7000");
  }

  void Install(const v1::CoordinatorWord& word) {
    auto coordinator = Coordinator::Create(Facts(), SteadyNow());
    REQUIRE(live.Install(*std::move(coordinator), word, &store).ok());
  }

  absl::Status Attach() {
    return live.Attach(hello, this, [this](const v1::PlanMessage* message) {
      inbox.push_back(message == nullptr ? std::nullopt : std::make_optional(*message));
    });
  }

  absl::StatusOr<v1::JoinReply> Join(uint64_t run = 0, uint64_t member = 0) {
    v1::JoinRequest request;
    request.set_job_digest("d1");
    request.set_layout_hash(77);
    request.set_protocol(kControlProtocol);
    request.set_rows(100);
    request.set_member(member);
    return live.Run(run, [&](Coordinator& coordinator, absl::Time now) {
      return coordinator.Join(request, now);
    });
  }

  FakeStore store;
  LiveCoordinator live;
  v1::ServerHello hello;
  // nullopt: the connection is to end.
  std::deque<std::optional<v1::PlanMessage>> inbox;
};

TEST_CASE("the term is kept before anybody hears of it, and every connection begins with it",
          "[control][live]") {
  Fixture f;
  CHECK(absl::IsUnavailable(f.Attach()));
  f.Install(Word(9, 3));
  CHECK(f.store.kept.run() == 9);
  CHECK(f.store.kept.term() == 3);
  REQUIRE(f.Attach().ok());
  REQUIRE(f.inbox.size() == 1);
  CHECK(f.inbox[0]->word().term() == 3);
  CHECK(f.inbox[0]->word().run() == 9);
}

TEST_CASE("a state is written when others may go by it, and not when nothing changes",
          "[control][live]") {
  Fixture f;
  f.Install(Word(9, 1));
  REQUIRE(f.Attach().ok());
  const auto joined = f.Join();
  REQUIRE(joined.ok());
  // The plan that followed has been kept: it was sent.
  CHECK(f.store.kept.membership().members_size() == 1);
  CHECK(f.store.kept.membership().generation() == 1);
  REQUIRE(f.inbox.size() == 2);
  CHECK(f.inbox[1]->plan().generation() == 1);
  const int writes = f.store.writes;
  for (int i = 0; i < 10; ++i) {
    v1::RenewRequest request;
    request.set_member(1);
    request.mutable_progress()->set_step(i);
    CHECK(f.live.Run(9, [&](Coordinator& coordinator, absl::Time now) {
      return coordinator.Renew(request, now);
    }).ok());
    v1::ShardMessage message;
    message.mutable_counters()->set_version(i);
    f.live.OnShardMessage(f.hello, &f, message);
    REQUIRE(f.Join(9, 1).ok());
  }
  CHECK(f.store.writes == writes);
}

TEST_CASE("what cannot be kept is not sent, and the coordinator is gone", "[control][live]") {
  Fixture f;
  f.Install(Word(9, 1));
  REQUIRE(f.Attach().ok());
  std::optional<absl::Status> vacated;
  f.live.SetOnVacated([&](absl::Status why) { vacated = why; });
  f.inbox.clear();
  f.store.fails = absl::AbortedError("another one has taken over");
  const auto joined = f.Join();
  CHECK(absl::IsUnavailable(joined.status()));
  REQUIRE(vacated.has_value());
  CHECK_FALSE(f.live.is_here());
  // No plan: only that the connection is to end.
  REQUIRE(f.inbox.size() == 1);
  CHECK_FALSE(f.inbox[0].has_value());
  CHECK(absl::IsUnavailable(f.Attach()));
}

TEST_CASE("one that may have been superseded answers nobody", "[control][live]") {
  Fixture f;
  f.Install(Word(9, 1));
  f.store.held = false;
  CHECK(absl::IsUnavailable(f.Attach()));
  CHECK(absl::IsUnavailable(f.Join().status()));
  f.store.held = true;
  CHECK(f.Attach().ok());
}

TEST_CASE("whoever is of another run, or has heard of a later term, is refused", "[control][live]") {
  Fixture f;
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
  Fixture f;
  f.Install(Word(9, 1));
  REQUIRE(f.Attach().ok());
  REQUIRE(f.Join().ok());
  v1::ShardMessage applied;
  applied.mutable_applied()->set_generation(1);
  f.live.OnShardMessage(f.hello, &f, applied);
  REQUIRE(f.Join(9, 1)->admitted());
  v1::EvaluateRequest request;
  request.set_member(1);
  std::vector<absl::Status> answers;
  const auto done = [&](absl::StatusOr<v1::EvaluateReply> reply) { answers.push_back(reply.status()); };
  f.live.Evaluate(request, &f, done);
  REQUIRE(answers.size() == 1);  // The only one there.
  CHECK(answers[0].ok());
  request.set_stage(v1::SCORE);
  request.set_evaluation(1);
  request.set_attempt(1);
  f.store.fails = absl::UnavailableError("etcd is away");
  f.live.Evaluate(request, &f, done);
  REQUIRE(answers.size() == 2);
  CHECK(absl::IsUnavailable(answers[1]));
  CHECK_FALSE(f.live.is_here());
  f.live.Evaluate(request, &f, done);
  REQUIRE(answers.size() == 3);
  CHECK(absl::IsUnavailable(answers[2]));
}

}  // namespace
}  // namespace tessera
