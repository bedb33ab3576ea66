// The checkpoint of the end, which is tried again where it fails.
#include <catch2/catch.hpp>

#include "absl/strings/match.h"
#include "server/control/state_times.h"
#include "server/shard/checkpoint_mark.h"
#include "tests/server/control/rejoin_fixture.h"

namespace tessera {
namespace {

using Kind = DiskTask::Kind;

// Two workers, which advance together or on their own, have trained to the end and made their evaluation.
class Ended : public ControlFixture {
 public:
  explicit Ended(bool synchronous = true) : ControlFixture(FactsOf(synchronous)) {
    Start(2);
    for (const uint64_t member : {1, 2}) REQUIRE(Join(member)->admitted());
    const v1::EvaluateStage stages[] = {v1::ARRIVE, v1::CALIBRATE, v1::SCORE};
    for (int stage = 0; stage < 3; ++stage) {
      const uint64_t attempt = stage == 0 ? 0 : 1;
      for (const uint64_t member : {1, 2}) {
        REQUIRE(Evaluate(member, stages[stage], kSteps, attempt, attempt).ok());
      }
    }
    for (const uint64_t member : {1, 2}) REQUIRE(Ask(member).wait());
    REQUIRE(tasks.front().kind == Kind::kBegin);
  }

  static JobFacts FactsOf(bool synchronous) {
    JobFacts facts = RejoinFacts();
    facts.checkpoint_every = 0;
    facts.target_accuracy = 0.5;  // what they find
    facts.synchronous = synchronous;
    facts.aligned = synchronous;
    return facts;
  }

  // What a worker at its end is told.
  v1::SavedReply Ask(uint64_t member) {
    v1::SavedRequest request;
    request.set_member(member);
    request.set_writes_again(member != writes_once);
    const absl::StatusOr<v1::SavedReply> reply = coordinator->Saved(request, now);
    REQUIRE(reply.ok());
    Tick(absl::ZeroDuration());
    return *reply;
  }
  bool MayGo(uint64_t member) {
    const v1::SavedReply reply = Ask(member);
    return !reply.wait() && !reply.has_mark();
  }

  uint64_t writes_once = 0;  // this member

  // Meanwhile all say that they live.
  void Pause(absl::Duration pause = LastCheckpoint::kPause) {
    Tick(pause);
    Heartbeat();
  }

  // Up to the order, of which both workers are told. Returns its number.
  uint64_t Ordered() {
    REQUIRE(tasks.front().kind == Kind::kBegin);
    Disk();
    StepAll();
    const uint64_t number = servers[0].order.mark().number();
    for (const FakeServer& server : servers) {
      CHECK(server.order.mark().number() == number);
      CHECK(Exchange(server.order.after_exchange()) == kCopyAtOnce);
    }
    CHECK(Ask(1).mark().number() == number);
    return number;
  }
  // All of it is there but for what the members in `but` write.
  void Write(uint64_t number, const std::set<uint64_t>& but = {}) {
    for (const int server : {0, 1}) Part(server);
    for (const uint64_t member : {1, 2}) {
      if (but.count(member) == 0) REQUIRE(Saved(member, number, kSteps, kSteps).ok());
    }
  }

  // How one may fail, from its beginning on.
  enum class Fault { kFolder, kPart, kFile, kCommit, kTakeover };
  void FailBy(Fault fault) {
    const absl::Status full = absl::UnavailableError("disk full");
    if (fault == Fault::kFolder) {
      Disk(full);
    } else if (fault == Fault::kPart) {
      Ordered();
      Part(0);
      Part(1, "disk full");
    } else if (fault == Fault::kFile) {
      v1::SavedRequest request;
      request.set_member(2);
      request.set_number(Ordered());
      request.set_error("disk full");
      REQUIRE(coordinator->Saved(request, now).ok());
      Tick(absl::ZeroDuration());
    } else if (fault == Fault::kCommit) {
      Write(Ordered());
      REQUIRE(tasks.front().kind == Kind::kCommit);
      Disk(full);
    } else {
      Ordered();
      Restart();
      for (const int server : {0, 1}) REQUIRE(Attach(server).ok());
      StepAll();
    }
    REQUIRE(Disk().kind == Kind::kAbandon);
    REQUIRE(tasks.empty());
  }

  v1::JobStatus Status() const { return coordinator->Status(now); }

  static constexpr uint64_t kSteps = 10;
};

using Fault = Ended::Fault;

TEST_CASE("the last checkpoint that fails is made at the next try, whatever it failed by",
          "[checkpoints]") {
  Ended job(GENERATE(true, false));
  const uint64_t folder = job.tasks.front().folder_step;
  job.FailBy(
      GENERATE(Fault::kFolder, Fault::kPart, Fault::kFile, Fault::kCommit, Fault::kTakeover));
  // Nobody goes, and the disk is left alone for a while.
  job.Pause(LastCheckpoint::kPause - absl::Milliseconds(1));
  CHECK(job.Ask(1).wait());
  CHECK(job.Ask(2).wait());
  CHECK(job.tasks.empty());
  CHECK(absl::StrContains(job.Status().checkpoint().failure(),
                          "; it is the last one, tried again in 1s"));
  job.Pause(absl::Milliseconds(1));
  REQUIRE(job.tasks.size() == 1);
  CHECK(job.tasks.front().folder_step > folder);
  const uint64_t number = job.Ordered();
  CHECK(number == 2);
  job.Write(number);
  const DiskTask commit = job.Disk();
  REQUIRE(commit.kind == Kind::kCommit);
  CHECK(commit.manifest.step == Ended::kSteps);
  CHECK(commit.manifest.members.size() == 2);
  CHECK(job.Status().checkpoint().failure().empty());
  CHECK(job.Status().checkpoint().count() == 1);
  for (const uint64_t member : {1, 2}) {
    CHECK(job.MayGo(member));
    REQUIRE(job.Leave(member).ok());
  }
  CHECK(job.tasks.empty());
  CHECK(job.coordinator->outcome().ok());
}

TEST_CASE("who has yet to write its part of the last checkpoint is named", "[checkpoints]") {
  Ended job;
  const auto waits_for = [&job] { return Words(job.coordinator->Status(job.now).waiting_for()); };
  CHECK(waits_for() == "the disk of checkpoint 1");
  const uint64_t number = job.Ordered();
  REQUIRE(number == 1);
  const std::string what = " to write its part of checkpoint 1";
  CHECK(waits_for() ==
        "server 0" + what + ", server 1" + what + ", worker 0" + what + ", worker 1" + what);
  job.Part(0);
  REQUIRE(job.Saved(2, number, Ended::kSteps, Ended::kSteps).ok());
  CHECK(waits_for() == "server 1" + what + ", worker 0" + what);
}

TEST_CASE("the last checkpoint is given up after its last try, and the job ends", "[checkpoints]") {
  Ended job;
  // What was waited for before another process took over goes on.
  const bool restarts = GENERATE(false, true);
  for (int failed = 1; failed <= LastCheckpoint::kTries; ++failed) {
    job.FailBy(Fault::kPart);
    if (restarts) {
      job.Restart();
      for (const int server : {0, 1}) REQUIRE(job.Attach(server).ok());
      job.StepAll();
    }
    for (const uint64_t member : {1, 2}) {
      CHECK(job.MayGo(member) == (failed == LastCheckpoint::kTries));
    }
    if (failed < LastCheckpoint::kTries) job.Pause();
  }
  job.Pause();
  CHECK(job.tasks.empty());
  CHECK(job.Status().checkpoint().failure() == "server 1: disk full");
  for (const uint64_t member : {1, 2}) {
    CHECK(job.MayGo(member));
    REQUIRE(job.Leave(member).ok());
  }
  CHECK(job.coordinator->outcome().ok());
  CHECK(job.Status().failure().empty());
}

TEST_CASE("another clock's process waits as long for the next try", "[checkpoints]") {
  Ended job;
  job.FailBy(Fault::kPart);
  job.Pause(absl::Seconds(2));
  v1::CoordinatorState state = job.coordinator->Save();
  Stamp({job.now, "this machine's", job.now}, &state);
  const absl::Time there = job.now + absl::Hours(7);
  ShiftTimes({there, "another's", job.now}, absl::Hours(1), &state);
  CHECK(absl::FromUnixNanos(state.checkpoints().try_last_at()) ==
        there + LastCheckpoint::kPause - absl::Seconds(2));
}

TEST_CASE("a state whose last checkpoint cannot be is refused", "[checkpoints]") {
  Ended job;
  job.FailBy(Fault::kPart);
  const v1::CoordinatorState state = job.coordinator->Save();
  JobFacts facts = Ended::FactsOf(/*synchronous=*/true);
  facts.digest = "d1";
  facts.layout_hash = 77;
  REQUIRE(Coordinator::Load(facts, state).ok());
  v1::CoordinatorState open = state, often = state;
  open.mutable_checkpoints()->set_stage(static_cast<uint32_t>(Checkpoints::Stage::kWriting));
  often.mutable_checkpoints()->set_last_failures(LastCheckpoint::kTries + 1);
  for (const v1::CoordinatorState& wrong : {open, often}) {
    CHECK_THAT(std::string(Coordinator::Load(facts, wrong).status().message()),
               Catch::Contains("last checkpoint has failed"));
  }
}

TEST_CASE("who dies before the last checkpoint is tried again is waited for no more",
          "[checkpoints]") {
  Ended job;
  job.FailBy(Fault::kPart);
  const bool all = GENERATE(false, true);
  REQUIRE(job.Leave(2, "gave up").ok());
  if (all) REQUIRE(job.Leave(1, "gave up").ok());
  job.Pause();
  if (all) {
    CHECK(absl::StrContains(job.Status().failure(), "all workers are gone"));
    CHECK(job.tasks.empty());
    return;
  }
  job.Write(job.Ordered(), /*but=*/{2});
  const DiskTask commit = job.Disk();
  REQUIRE(commit.kind == Kind::kCommit);
  REQUIRE(commit.manifest.members.size() == 1);
  CHECK(job.MayGo(1));
}

TEST_CASE("the last checkpoint is not tried again where somebody would not write to it again",
          "[checkpoints]") {
  Ended job;
  // Known before it fails, or only in the pause.
  const bool early = GENERATE(true, false);
  if (early) {
    job.writes_once = 2;
    job.Ask(2);
  }
  job.FailBy(Fault::kPart);
  job.writes_once = 2;
  job.Ask(2);
  job.Pause();
  CHECK(job.tasks.empty());
  for (const uint64_t member : {1, 2}) CHECK(job.MayGo(member));
}

TEST_CASE("a job that waits for its last checkpoint can be stopped", "[checkpoints]") {
  Ended job;
  job.FailBy(Fault::kPart);
  job.coordinator->Drain("Ctrl-C", job.now);
  CHECK(job.Ask(1).wait());
  job.coordinator->Stop("Ctrl-C", job.now);
  v1::SavedRequest request;
  request.set_member(1);
  CHECK(absl::IsFailedPrecondition(job.coordinator->Saved(request, job.now).status()));
  job.Pause();
  CHECK(job.tasks.empty());
  CHECK(job.Status().checkpoint().failure() == "server 1: disk full");
}

}  // namespace
}  // namespace tessera
