// What is kept of epochs, whatever a worker asks for.
#include <catch2/catch.hpp>
#include <string>

#include "tests/server/control/control_fixture.h"

namespace tessera {
namespace {

// 100 rows and batches of 10: ten steps an epoch for one worker, five for two.
JobFacts AdvancingFacts(int workers) {
  JobFacts facts = ControlFixture::Facts(1, workers);
  facts.epochs = 1000000;
  facts.synchronous = facts.aligned = false;
  return facts;
}

absl::StatusOr<v1::EpochCut> Begin(ControlFixture* control, uint64_t member, uint64_t epoch,
                                   uint64_t step) {
  v1::BeginEpochRequest request;
  request.set_member(member);
  request.set_epoch(epoch);
  request.set_step(step);
  return control->coordinator->BeginEpoch(request, control->now);
}

// What was asked for is kept.
void Restart(ControlFixture* control) {
  control->Tick(absl::ZeroDuration());
  control->Restart();
}

size_t StateBytes(const ControlFixture& control) {
  return control.coordinator->Save().epochs().ByteSizeLong();
}

TEST_CASE("a worker that asks for epoch after epoch makes nothing grow", "[control][epochs]") {
  ControlFixture control(AdvancingFacts(2));
  control.Start(2);
  REQUIRE(Begin(&control, 2, 0, 0).ok());
  REQUIRE(Begin(&control, 1, 1, 5).ok());
  const size_t before = StateBytes(control);
  // Worker 1 stays in the first one, so that none of them is over.
  constexpr uint64_t kAsked = 20000;
  for (uint64_t epoch = 2; epoch < kAsked; ++epoch) {
    const auto cut = Begin(&control, 1, epoch, 5 * epoch);
    REQUIRE(cut.ok());
    REQUIRE(cut->first_step() == 5 * epoch);
  }
  CHECK(StateBytes(control) < before + 16);
  // All of them are known, here and to whoever goes on from the state.
  const bool restarts = GENERATE(false, true);
  if (restarts) Restart(&control);
  for (const uint64_t epoch : {uint64_t{0}, uint64_t{1}, uint64_t{77}, kAsked - 1}) {
    const auto cut = Begin(&control, 2, epoch, 0);
    REQUIRE(cut.ok());
    CHECK(cut->first_step() == 5 * epoch);
    CHECK((cut->steps() == 5 && cut->parts() == 2 && cut->part() == 1));
  }
  CHECK(Begin(&control, 1, kAsked, 5 * kAsked).ok());
}

TEST_CASE("nobody begins an epoch before it has come there", "[control][epochs]") {
  ControlFixture control(AdvancingFacts(1));
  control.Start(1);
  REQUIRE(Begin(&control, 1, 0, 0).ok());
  const uint64_t changes = control.coordinator->Save().changes();
  for (int i = 0; i < 3; ++i) {
    CHECK(Begin(&control, 1, 1, 9).status().message() ==
          "worker 0: epoch 1 begins at step 10, not at 9");
  }
  CHECK(control.coordinator->Save().changes() == changes);
  CHECK(Begin(&control, 1, 1, 10).ok());
}

TEST_CASE("epochs that were cut otherwise are told apart, until all are past them",
          "[control][epochs]") {
  ControlFixture control(AdvancingFacts(1));
  control.Start(1);
  for (uint64_t epoch = 0; epoch < 4; ++epoch) REQUIRE(Begin(&control, 1, epoch, 10 * epoch).ok());
  REQUIRE(control.Renew(1, 40, 40).ok());
  const uint64_t late = control.Join()->member();
  control.StepAll();
  REQUIRE(control.Join(late)->admitted());
  // Epochs 0 to 3 have ten steps, and 4 to 6 five.
  for (uint64_t epoch = 4; epoch < 7; ++epoch) {
    REQUIRE(Begin(&control, 1, epoch, 20 + 5 * epoch).ok());
  }
  CHECK(control.coordinator->Save().epochs().cuts_size() == 3);
  Restart(&control);
  CHECK(Begin(&control, late, 3, 30)->parts() == 1);
  CHECK(Begin(&control, late, 3, 30)->first_step() == 30);
  CHECK(Begin(&control, late, 5, 45)->first_step() == 45);
  CHECK(Begin(&control, late, 5, 45)->parts() == 2);
  CHECK(control.coordinator->Status(control.now).steps_planned() == 50 + (1000000 - 6) * 5);
  // Those that are over for both are forgotten with the next cut.
  for (const uint64_t member : {uint64_t{1}, late}) REQUIRE(control.Renew(member, 55, 55).ok());
  REQUIRE(Begin(&control, 1, 7, 55).ok());
  CHECK(absl::IsInvalidArgument(Begin(&control, late, 3, 30).status()));
  CHECK(Begin(&control, late, 5, 45)->first_step() == 45);
}

TEST_CASE("a state in which an epoch does not begin where the last one ends is refused",
          "[control][epochs]") {
  ControlFixture control(AdvancingFacts(1));
  control.Start(1);
  for (uint64_t epoch = 0; epoch < 4; ++epoch) REQUIRE(Begin(&control, 1, epoch, 10 * epoch).ok());
  v1::CoordinatorState state = control.coordinator->Save();
  REQUIRE(state.epochs().cuts_size() == 2);
  JobFacts facts = control.coordinator->facts();
  CHECK(Coordinator::Load(facts, state).ok());
  v1::EpochsState::Cut& last = *state.mutable_epochs()->mutable_cuts(1);
  SECTION("an epoch is missing") { last.set_epoch(4); }
  SECTION("a step is missing") { last.set_first_step(31); }
  SECTION("it begins before that") { last.set_first_step(0); }
  SECTION("it is the same one") { last.set_epoch(0); }
  SECTION("it has no steps") { last.set_steps(0); }
  CHECK(absl::IsInvalidArgument(Coordinator::Load(facts, state).status()));
}

// Saved at a step of a job of two workers with 100 rows and batches of 10, all but `most` of which is `least`.
SavedState SavedAt(uint64_t least, uint64_t most) {
  SavedState saved;
  saved.manifest.step = most;
  saved.manifest.members.resize(2);
  saved.manifest.members[0].step = least;
  saved.manifest.members[1].step = most;
  for (uint64_t epoch = 0; 5 * epoch <= most; ++epoch) {
    saved.job.cuts.push_back({epoch, 5 * epoch, 5, 100, {0, 1}, {}});
  }
  return saved;
}

TEST_CASE("another batch size waits for an epoch's end", "[control][epochs]") {
  JobFacts facts = ControlFixture::Facts(1, 2);
  facts.batch_size = 20;
  const absl::Status refused = CheckBatchSize(SavedAt(7, 7), facts);
  CHECK(absl::IsFailedPrecondition(refused));
  CHECK(std::string(refused.message()) ==
        "train.batch_size: 20 makes 2 steps an epoch, want 5 as before: the checkpoint of step 7 "
        "is in "
        "the midst of epoch 1; go on with the former batch size, or from a checkpoint at an "
        "epoch's end "
        "(step 10 is one)");
  CHECK(CheckBatchSize(SavedAt(10, 10), facts).ok());
  // One of them has yet to end it.
  CHECK_FALSE(CheckBatchSize(SavedAt(9, 10), facts).ok());
  facts.batch_size = 10;
  CHECK(CheckBatchSize(SavedAt(7, 7), facts).ok());
}

TEST_CASE("an epoch that nobody had begun is cut by the batch size there is now",
          "[control][epochs]") {
  const auto batch = GENERATE(10, 20);
  JobFacts facts = ControlFixture::Facts(1, 2);
  facts.batch_size = batch;
  Epochs epochs(facts);
  epochs.Restore(SavedAt(10, 10).job.cuts, 10);
  const std::vector<SavedCut> kept = epochs.Save(10, 10);
  REQUIRE(!kept.empty());
  CHECK(kept.back().epoch == (batch == 10 ? 2 : 1));
  CHECK(kept.back().steps == 5);
}

// As AdvancingFacts, with slower workers having smaller minibatches.
JobFacts BySpeed(int workers) {
  JobFacts facts = AdvancingFacts(workers);
  facts.rows_by_speed = true;
  return facts;
}

void SayRowsPerSecond(ControlFixture* control, uint64_t member, double rows_per_second,
                      uint64_t batch_rows) {
  v1::RenewRequest request;
  request.set_member(member);
  request.mutable_progress()->set_beats(batch_rows);
  request.mutable_progress()->set_steps_per_second(rows_per_second /
                                                   static_cast<double>(batch_rows));
  request.mutable_progress()->set_speed_steps(10);
  request.mutable_progress()->set_batch_rows(batch_rows);
  REQUIRE(control->coordinator->Renew(request, control->now).ok());
}

// The rows of a step: of how many that are before it.
std::string Dealt(const absl::StatusOr<v1::EpochCut>& cut) {
  REQUIRE(cut.ok());
  return std::to_string(cut->batch_rows()) + " behind " + std::to_string(cut->rows_before()) +
         ", " + std::to_string(cut->steps()) + " steps";
}

TEST_CASE("rows go by speed from the second epoch on, and the steps of an epoch stay what they are",
          "[control][epochs]") {
  ControlFixture control(BySpeed(2));
  control.Start(2);
  const bool restarts = GENERATE(false, true);
  CHECK(Dealt(Begin(&control, 1, 0, 0)) == "10 behind 0, 5 steps");
  CHECK(Dealt(Begin(&control, 2, 0, 0)) == "10 behind 10, 5 steps");
  SayRowsPerSecond(&control, 1, 30, 10);
  SayRowsPerSecond(&control, 2, 10, 10);
  if (restarts) Restart(&control);
  CHECK(Dealt(Begin(&control, 2, 1, 5)) == "5 behind 15, 5 steps");
  // What comes to be known in an epoch changes the next one.
  SayRowsPerSecond(&control, 1, 10, 15);
  SayRowsPerSecond(&control, 2, 10, 5);
  if (restarts) Restart(&control);
  CHECK(Dealt(Begin(&control, 1, 1, 5)) == "15 behind 0, 5 steps");
  CHECK(Dealt(Begin(&control, 1, 2, 10)) == "10 behind 0, 5 steps");
}

TEST_CASE("a job that goes on from a checkpoint has the sizes of the epoch that it was in",
          "[control][epochs]") {
  SavedState saved = SavedAt(7, 7);
  saved.job.cuts[1].batch_rows = {14, 6};
  JobFacts facts = ControlFixture::Facts(1, 2);
  facts.rows_by_speed = true;
  const auto again = [&] {
    Epochs epochs(facts);
    epochs.Restore(saved.job.cuts, 7);
    return epochs.Save(7, 7).back().batch_rows;
  };
  CHECK(again() == std::vector<int64_t>{14, 6});
  SECTION("another job deals them otherwise") { facts.rows_by_speed = false; }
  SECTION("they are not of this batch size") { facts.batch_size = 9; }
  SECTION("one has more than anybody may have") { saved.job.cuts[1].batch_rows = {41, -21}; }
  SECTION("one is missing") { saved.job.cuts[1].batch_rows = {20}; }
  CHECK(again().empty());
}

TEST_CASE("a state whose minibatches have not the mean size is refused", "[control][epochs]") {
  ControlFixture control(BySpeed(2));
  control.Start(2);
  REQUIRE(Begin(&control, 1, 0, 0).ok());
  v1::CoordinatorState state = control.coordinator->Save();
  JobFacts facts = control.coordinator->facts();
  CHECK(Coordinator::Load(facts, state).ok());
  v1::EpochsState::Cut& cut = *state.mutable_epochs()->mutable_cuts(0);
  REQUIRE(cut.batch_rows_size() == 2);
  SECTION("one is larger") { cut.set_batch_rows(0, 11); }
  SECTION("one is missing") { cut.mutable_batch_rows()->RemoveLast(); }
  SECTION("one is empty") {
    cut.set_batch_rows(0, 20);
    cut.set_batch_rows(1, 0);
  }
  CHECK(absl::IsInvalidArgument(Coordinator::Load(facts, state).status()));
}

}  // namespace
}  // namespace tessera
