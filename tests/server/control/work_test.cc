// What workers have done in all, whoever of them is still there to say so.
#include <catch2/catch.hpp>
#include <memory>
#include <utility>

#include "nlohmann/json.hpp"
#include "tests/server/control/rejoin_fixture.h"

namespace tessera {
namespace {

void Tell(ControlFixture* control, uint64_t member, uint64_t step, uint64_t examples,
          uint64_t exchanges, bool with_traffic = true) {
  v1::RenewRequest request;
  request.set_member(member);
  v1::Progress& progress = *request.mutable_progress();
  progress.set_step(step);
  progress.set_exchange(step);
  progress.set_examples(examples);
  if (with_traffic) {
    progress.mutable_traffic()->set_exchanges(exchanges);
    progress.mutable_traffic()->set_push_payload_bytes(100 * exchanges);
  }
  REQUIRE(control->Renew(request).ok());
}

void SaveAt(ControlFixture* control, uint64_t member, uint64_t number, uint64_t step,
            uint64_t examples) {
  v1::SavedRequest request;
  request.set_member(member);
  request.set_number(number);
  request.mutable_progress()->set_exchange(step);
  request.mutable_progress()->set_step(step);
  request.mutable_progress()->set_examples(examples);
  REQUIRE(control->Saved(request).ok());
}

// Of step 10, in which member 1 has trained on 100 rows and member 2 on 90.
void MakeCheckpointOfWork(ControlFixture* control) {
  control->Disk();
  control->StepAll();
  const uint64_t number = control->servers[0].order.mark().number();
  control->Part(0);
  control->Part(1);
  SaveAt(control, 1, number, 10, 100);
  SaveAt(control, 2, number, 10, 90);
  control->Disk();
}

void Report(ControlFixture* control, uint64_t member, uint64_t steps, uint64_t examples,
            uint64_t exchanges) {
  v1::LeaveRequest request;
  request.set_member(member);
  request.mutable_report()->set_steps(steps);
  request.mutable_report()->set_examples(examples);
  request.mutable_report()->set_exchanges(exchanges);
  REQUIRE(control->Leave(request).ok());
}

void LoseServer1(ControlFixture* control) {
  control->coordinator->Detach(ShardId(1), control->servers[1].hello.life(), control->now);
  control->servers[1].hello.set_life(control->servers[1].hello.life() + 1000);
  control->servers[1].inbox.clear();
  REQUIRE(control->Attach(1).ok());
  control->StepAll();
}

uint64_t JoinAgain(ControlFixture* control, int rank, uint64_t before) {
  const auto joined = control->Join(0, rank, before);
  REQUIRE(joined.ok());
  return joined->member();
}

v1::JobStatus StatusOf(const ControlFixture& control) {
  return control.coordinator->Status(control.now);
}

std::shared_ptr<const SavedState> LastSaved(const ControlFixture& control) {
  SavedStates saved;
  const v1::CoordinatorState state = control.coordinator->Save();
  REQUIRE(state.saved_size() > 0);
  auto states = SavedStates::Load(state);
  REQUIRE(states.ok());
  std::shared_ptr<const SavedState> last;
  REQUIRE(states->Find(state.saved_size(), &last).ok());
  return last;
}

TEST_CASE("what a lost worker told last counts in all sums", "[control][work]") {
  ControlFixture control(ControlFixture::Facts(2, 2));
  control.Start(2);
  Tell(&control, 1, 8, 80, 8);
  Tell(&control, 2, 6, 60, 6);
  REQUIRE(control.Leave(2, "its memory is gone").ok());
  control.StepAll();
  Report(&control, 1, 10, 100, 10);
  control.StepAll();
  const v1::JobStatus status = StatusOf(control);
  CHECK(status.examples() == 160);
  CHECK(status.unreported().exchanges() == 6);
  const nlohmann::json report = nlohmann::json::parse(status.report_json());
  CHECK(report["examples"] == 160);
  CHECK(report["traffic"]["exchanges"] == 16);
  CHECK(report["traffic"]["push_payload_bytes"] == 600);
  CHECK(report["traffic"]["by_worker"].size() == 1);
}

TEST_CASE("nobody has trained on less than the parameters have learned from", "[control][work]") {
  ControlFixture control(ControlFixture::Facts(1, 1));
  control.Start(1);
  Tell(&control, 1, 8, 80, 8);
  v1::ShardMessage message;
  message.mutable_counters()->set_examples(95);
  control.coordinator->OnShardMessage(ShardId(0), message, control.now);
  CHECK(StatusOf(control).examples() == 95);
  Tell(&control, 1, 11, 110, 11);
  CHECK(StatusOf(control).examples() == 110);
}

TEST_CASE(
    "a job that goes back counts what its checkpoint has and what was done since, and all traffic",
    "[control][work]") {
  ControlFixture control(RejoinFacts());
  control.Start(2);
  MakeCheckpointOfWork(&control);
  Tell(&control, 1, 14, 140, 14);
  Tell(&control, 2, 13, 120, 13);
  CHECK(StatusOf(control).examples() == 260);
  LoseServer1(&control);
  CHECK(StatusOf(control).examples() == 190);
  CHECK(StatusOf(control).unreported().exchanges() == 27);
  const uint64_t first = JoinAgain(&control, 0, 1), second = JoinAgain(&control, 1, 2);
  control.StepAll();
  // Before its loop begins a worker has nothing to say of its traffic.
  Tell(&control, first, 10, 0, 0, /*with_traffic=*/false);
  CHECK(StatusOf(control).unreported().exchanges() == 27);
  Tell(&control, first, 12, 20, 16);
  Tell(&control, second, 11, 10, 14);
  CHECK(StatusOf(control).examples() == 220);
  CHECK(StatusOf(control).unreported().exchanges() == 30);
  // What a former member says of itself was undone.
  Report(&control, 1, 14, 140, 14);
  CHECK(StatusOf(control).examples() == 220);
}

TEST_CASE("a lost worker's traffic counts once, whether its process came again or not",
          "[control][work]") {
  ControlFixture control(RejoinFacts());
  control.Start(2);
  MakeCheckpointOfWork(&control);
  Tell(&control, 1, 14, 140, 14);
  Tell(&control, 2, 13, 120, 13);
  LoseServer1(&control);
  JoinAgain(&control, 0, 1);
  // Another process in the place of worker 1.
  JoinAgain(&control, 1, 0);
  CHECK(StatusOf(control).unreported().exchanges() == 27);
  // Nobody continues a member twice, nor one that is still there.
  JoinAgain(&control, 2, 1);
  JoinAgain(&control, 3, 3);
  CHECK(StatusOf(control).unreported().exchanges() == 27);
}

// Of all members of a rank.
double ComputeSeconds(const ControlFixture& control, uint32_t rank) {
  const v1::JobStatus status = StatusOf(control);
  double sum = 0;
  for (const v1::MemberStatus& member : status.members()) {
    if (member.rank() == rank) sum += member.progress().phases().compute_seconds();
  }
  return sum;
}

void TellCompute(ControlFixture* control, uint64_t member, uint64_t step, double seconds) {
  v1::RenewRequest request;
  request.set_member(member);
  request.mutable_progress()->set_step(step);
  if (seconds > 0) request.mutable_progress()->mutable_phases()->set_compute_seconds(seconds);
  REQUIRE(control->Renew(request).ok());
}

TEST_CASE(
    "where a worker's time went is never told as less, and counts once, whether its process came "
    "again or not",
    "[control][work]") {
  ControlFixture control(RejoinFacts());
  control.Start(2);
  MakeCheckpointOfWork(&control);
  TellCompute(&control, 1, 14, 7);
  TellCompute(&control, 2, 13, 6);
  // Says nothing of it, as before its loop begins.
  TellCompute(&control, 1, 15, 0);
  CHECK(ComputeSeconds(control, 0) == 7);
  LoseServer1(&control);
  CHECK(ComputeSeconds(control, 0) == 7);
  CHECK(ComputeSeconds(control, 1) == 6);
  const uint64_t first = JoinAgain(&control, 0, 1);
  // Another process in the place of worker 1.
  const uint64_t second = JoinAgain(&control, 1, 0);
  control.StepAll();
  CHECK(ComputeSeconds(control, 0) == 7);
  TellCompute(&control, first, 11, 9);
  TellCompute(&control, second, 11, 2);
  CHECK(ComputeSeconds(control, 0) == 9);
  CHECK(ComputeSeconds(control, 1) == 8);
  // Its report is its last word on it.
  v1::LeaveRequest leave;
  leave.set_member(first);
  leave.mutable_report()->set_compute_seconds(9.5);
  REQUIRE(control.Leave(leave).ok());
  CHECK(ComputeSeconds(control, 0) == 9.5);
}

TEST_CASE(
    "a checkpoint has the examples of all who worked for it, and the job goes on counting from "
    "there",
    "[control][work]") {
  JobFacts facts = RejoinFacts();
  ControlFixture control(facts);
  control.Start(2);
  const auto late = control.Join(0, 7);
  control.StepAll();
  REQUIRE(control.Join(late->member())->admitted());
  Tell(&control, late->member(), 4, 40, 4);
  REQUIRE(control.Leave(late->member(), "its memory is gone").ok());
  control.StepAll();
  MakeCheckpointOfWork(&control);
  const std::shared_ptr<const SavedState> saved = LastSaved(control);
  CHECK(saved->job.examples == 230);
  CHECK(ParseSavedJob("m", FormatSavedJob(saved->job))->examples == 230);

  // With another number of workers.
  facts.workers = 1;
  facts.restored = saved;
  ControlFixture again(facts);
  again.Start(1);
  CHECK(StatusOf(again).examples() == 230);
  Tell(&again, 1, 12, 20, 2);
  CHECK(StatusOf(again).examples() == 250);

  // One that was written before that was kept: each of its members made all its steps.
  auto older = std::make_shared<SavedState>(*saved);
  older->job.examples.reset();
  older->manifest.coordinator = FormatSavedJob(older->job);
  facts.restored = older;
  ControlFixture from_older(facts);
  CHECK(StatusOf(from_older).examples() == 2 * 10 * 10);
}

TEST_CASE("what older coordinators saved can be read", "[control][work]") {
  const std::string older =
      R"({"format":1,"train_seconds":"1.5","evaluation_due":0,"whole_next":0,"joined":2,"lost":1,)"
      R"("partial_pushes":0,"cuts":[],"history":[]})";
  const absl::StatusOr<SavedJob> job = ParseSavedJob("m", older);
  REQUIRE(job.ok());
  CHECK_FALSE(job->examples.has_value());
}

}  // namespace
}  // namespace tessera
