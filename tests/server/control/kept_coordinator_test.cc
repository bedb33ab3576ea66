#include "server/control/kept_coordinator.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

#include "tests/server/control/control_fixture.h"

namespace tessera {
namespace {

constexpr uint64_t kRun = 1;
constexpr uint64_t kServerKey = 7;

// A server of this job that says that it was told so many changes of that term.
v1::ServerHello HelloOf(uint64_t term, uint64_t changes) {
  v1::ServerHello hello;
  hello.set_job_digest("d1");
  hello.set_layout_hash(77);
  hello.set_life(100);
  hello.set_run(kRun);
  hello.set_server_key(kServerKey);
  hello.set_term(term);
  hello.set_changes(changes);
  return hello;
}

// The next coordinator, in the term after that of `state`, which has been through so many changes.
std::unique_ptr<KeptCoordinator> NextAfter(v1::CoordinatorState state, uint64_t changes) {
  const absl::Time now = absl::FromUnixSeconds(1000);
  JobFacts facts = ControlFixture::Facts(1, 1);
  facts.digest = "d1";
  facts.layout_hash = 77;
  auto coordinator =
      state.format() == 0 ? Coordinator::Create(facts, now) : Coordinator::Load(facts, state);
  REQUIRE(coordinator.ok());
  v1::CoordinatorWord word;
  word.set_run(kRun);
  word.set_server_key(state.format() == 0 ? kServerKey : state.server_key());
  word.set_term(state.term() + 1);
  word.set_changes(changes);
  return std::make_unique<KeptCoordinator>(*std::move(coordinator), word, /*is_kept=*/true);
}

bool IsAnswered(KeptCoordinator* kept, uint64_t term, uint64_t changes) {
  return kept->CheckHello(HelloOf(term, changes), absl::FromUnixSeconds(1001)).ok();
}

TEST_CASE(
    "a server that was told what was not kept is found out, however many coordinators came since",
    "[control][state]") {
  const StateMoment now{absl::FromUnixSeconds(1000), "", {}};
  const auto first = NextAfter(v1::CoordinatorState(), 0);
  // It told change 94 and had kept 86. The second one went through more changes than that, and had kept 99.
  const auto second = NextAfter(first->State(now), 86);
  const auto third = [&] { return NextAfter(second->State(now), 99); };
  CHECK(IsAnswered(third().get(), 1, 86));
  CHECK_FALSE(IsAnswered(third().get(), 1, 94));
  CHECK(IsAnswered(third().get(), 2, 94));
  CHECK(IsAnswered(third().get(), 2, 99));
  CHECK_FALSE(IsAnswered(third().get(), 2, 100));
  CHECK(IsAnswered(third().get(), 3, 1000));
  CHECK(absl::IsUnavailable(third()->CheckHello(HelloOf(4, 0), now.steady)));
}

TEST_CASE("a stranger that says it was told what was not kept is refused and ends no job",
          "[control][state]") {
  const StateMoment now{absl::FromUnixSeconds(1000), "", {}};
  const auto first = NextAfter(v1::CoordinatorState(), 0);
  const auto second = NextAfter(first->State(now), 86);
  struct Lie {
    std::string words;
    v1::ServerHello hello;
  };
  std::vector<Lie> lies = {{"job digest", HelloOf(1, 100)},
                           {"layout hash", HelloOf(1, 100)},
                           {"without the number of the run", HelloOf(1, 100)},
                           {"without the server_key of the run", HelloOf(1, 100)},
                           {"without the server_key of the run", HelloOf(0, 1)}};
  lies[0].hello.clear_job_digest();
  lies[1].hello.set_layout_hash(1);
  lies[2].hello.set_run(kRun + 1);
  // A worker is told the run, but not what servers are told.
  lies[3].hello.clear_server_key();
  lies[4].hello.set_server_key(kServerKey + 1);
  for (const auto& kept : {first.get(), second.get()}) {
    for (const Lie& lie : lies) {
      // What the first coordinator of a run has told was told in this term.
      if (kept == first.get() && lie.hello.term() == 1 && lie.words.find("run") != lie.words.npos) {
        continue;
      }
      CAPTURE(lie.words);
      const absl::Status refused = kept->CheckHello(lie.hello, now.steady);
      CHECK(absl::IsInvalidArgument(refused));
      CHECK(std::string(refused.message()).find(lie.words) != std::string::npos);
      CHECK(kept->coordinator().outcome().ok());
      CHECK(kept->coordinator().StateWord() != "draining");
    }
    v1::HostHello host;
    host.set_changes(1);
    CHECK(absl::IsFailedPrecondition(kept->CheckHello(host, now.steady)));
    CHECK(kept->coordinator().outcome().ok());
  }
  // A server that was told so is believed.
  CHECK_FALSE(IsAnswered(second.get(), 1, 100));
  CHECK_FALSE(second->coordinator().outcome().ok());
}

TEST_CASE("of very many terms the last ones are kept", "[control][state]") {
  const StateMoment now{absl::FromUnixSeconds(1000), "", {}};
  auto kept = NextAfter(v1::CoordinatorState(), 0);
  for (int i = 0; i < 1100; ++i) kept = NextAfter(kept->State(now), 10 * kept->State(now).term());
  const v1::CoordinatorState state = kept->State(now);
  CHECK(state.terms_size() == 1000);
  CHECK(state.terms(999).term() == 1101);
  CHECK(state.terms(999).begun_at() == 11000);
  CHECK_FALSE(IsAnswered(kept.get(), 1099, 10991));
}

TEST_CASE(
    "of the answers to one that asks again and again while a state is written the last one waits",
    "[control][state]") {
  ControlFixture control(ControlFixture::Facts(1, 1));
  control.Start(1);
  REQUIRE(control.Join(1)->admitted());
  KeptCoordinator kept(std::move(control.coordinator), {}, /*is_kept=*/true);
  kept.Collect();
  v1::EvaluateRequest request;
  request.set_member(1);
  request.mutable_progress()->set_step(5);
  request.set_stage(v1::SCORE);  // nobody has arrived, and it is told so
  for (int i = 0; i < 1000; ++i) {
    REQUIRE(kept.coordinator().Evaluate(request, control.now).ok());
    kept.Collect();
  }
  CHECK(kept.Release().batches.empty());
  kept.OnKept(kept.changes(), /*in_time=*/true);
  const KeptCoordinator::Told told = kept.Release();
  REQUIRE(told.batches.size() == 1);
  CHECK(told.batches[0].event == kept.events());
  REQUIRE(told.batches[0].replies.size() == 1);
  CHECK(told.batches[0].replies[0].reply->restart());
}

}  // namespace
}  // namespace tessera
