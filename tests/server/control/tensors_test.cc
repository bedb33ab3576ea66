// Jobs of tensors: workers with data and scores of their own.
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "tests/server/control/control_fixture.h"

namespace tessera {
namespace {

JobFacts TensorFacts(int workers, int64_t steps, int64_t steps_per_epoch) {
  JobFacts facts = ControlFixture::Facts(1, workers);
  facts.is_of_tensors = true;
  facts.epochs = 0;
  facts.steps = steps;
  facts.steps_per_epoch = steps_per_epoch;
  facts.batch_size = 1;
  return facts;
}

// Workers 1, 2, ... that have no rows to tell of.
void StartWithoutRows(ControlFixture* control, int workers) {
  REQUIRE(control->Attach(0).ok());
  v1::JoinRequest wish = ControlFixture::Wish(-1);
  wish.set_rows(0);
  for (int i = 0; i < workers; ++i) REQUIRE(control->Join(wish).ok());
  control->StepAll();
}

absl::StatusOr<v1::EpochCut> Begin(ControlFixture* control, uint64_t member, uint64_t epoch,
                                   uint64_t step) {
  v1::BeginEpochRequest request;
  request.set_member(member);
  request.set_epoch(epoch);
  request.set_step(step);
  return control->coordinator->BeginEpoch(request, control->now);
}

// All of an evaluation; a worker without a score has nullopt.
void Evaluate(ControlFixture* control, uint64_t step,
              const std::vector<std::optional<double>>& score_sums) {
  const uint64_t evaluation = control->coordinator->Status(control->now).history_size() + 1;
  for (const v1::EvaluateStage stage : {v1::ARRIVE, v1::CALIBRATE, v1::SCORE}) {
    for (size_t i = 0; i < score_sums.size(); ++i) {
      v1::EvaluateRequest request;
      request.set_member(i + 1);
      request.set_stage(stage);
      request.set_evaluation(evaluation);
      request.set_attempt(1);
      request.mutable_progress()->set_step(step);
      request.mutable_progress()->set_exchange(step);
      request.mutable_progress()->set_epoch(control->epoch);
      request.mutable_scores()->set_rows(10);
      request.mutable_scores()->set_loss_sum(20);
      if (score_sums[i]) request.mutable_scores()->set_score_sum(*score_sums[i]);
      REQUIRE(control->Evaluate(request).ok());
    }
  }
}

v1::HistoryEntry Last(const ControlFixture& control) {
  const v1::JobStatus status = control.coordinator->Status(control.now);
  REQUIRE(status.history_size() > 0);
  return status.history(status.history_size() - 1);
}

}  // namespace

TEST_CASE("workers of a job of tensors join without rows, and with any numbers of them",
          "[control][tensors]") {
  ControlFixture control(TensorFacts(2, 100, 0));
  REQUIRE(control.Attach(0).ok());
  v1::JoinRequest wish = ControlFixture::Wish(-1);
  for (const uint64_t rows : {0, 7, 1000}) {
    wish.set_rows(rows);
    CHECK(control.Join(wish).ok());
  }
  // In a job of layers each of them is refused.
  ControlFixture layers(ControlFixture::Facts(1, 2));
  REQUIRE(layers.Attach(0).ok());
  wish.set_rows(0);
  CHECK(layers.Join(wish).status().message() == "join: training rows are 0, want at least 1");
}

TEST_CASE("an epoch of a job of tensors has the steps that the job says", "[control][tensors]") {
  ControlFixture control(TensorFacts(2, 100, 30));
  StartWithoutRows(&control, 2);
  const auto first = Begin(&control, 1, 0, 0);
  REQUIRE(first.ok());
  CHECK((first->steps() == 30 && first->first_step() == 0 && first->rows_total() == 0));
  CHECK((first->parts() == 2 && first->part() == 0));
  const auto third = [&] {
    REQUIRE(Begin(&control, 1, 1, 30).ok());
    return Begin(&control, 1, 2, 60);
  }();
  REQUIRE(third.ok());
  CHECK((third->steps() == 30 && third->first_step() == 60));
  // However many workers there are: a third one gets the same cut.
  const uint64_t late = control.Join()->member();
  control.StepAll();
  REQUIRE(control.Join(late)->admitted());
  const auto fourth = Begin(&control, 1, 3, 90);
  REQUIRE(fourth.ok());
  CHECK((fourth->steps() == 30 && fourth->first_step() == 90 && fourth->parts() == 3));
  control.Restart();
  CHECK(Begin(&control, 2, 3, 90)->first_step() == 90);
}

TEST_CASE("who joins in the midst of an epoch of a job of tensors trains at once",
          "[control][tensors]") {
  ControlFixture control(TensorFacts(2, 100, 0));
  StartWithoutRows(&control, 2);
  REQUIRE(Begin(&control, 1, 0, 0).ok());
  const uint64_t late = control.Join()->member();
  control.StepAll();
  const auto admitted = control.Join(late);
  REQUIRE(admitted->admitted());
  const auto cut = Begin(&control, late, 0, admitted->first_step());
  REQUIRE(cut.ok());
  CHECK((cut->parts() == 2 && cut->part() < 2));
}

TEST_CASE("without steps of an epoch the whole job is one", "[control][tensors]") {
  ControlFixture control(TensorFacts(1, 100, 0));
  StartWithoutRows(&control, 1);
  const auto cut = Begin(&control, 1, 0, 0);
  REQUIRE(cut.ok());
  CHECK((cut->steps() == 100 && cut->first_step() == 0));
}

TEST_CASE("a checkpoint in the midst of an epoch wants epochs of the same length",
          "[control][tensors]") {
  SavedState saved;
  saved.manifest.step = 50;
  saved.job.cuts.push_back({1, 30, 30, 0, {0, 1}});
  CHECK(CheckBatchSize(saved, TensorFacts(2, 100, 30)).ok());
  const absl::Status other = CheckBatchSize(saved, TensorFacts(2, 100, 40));
  CHECK(absl::IsFailedPrecondition(other));
  CHECK(
      other.message() ==
      "train.steps_per_epoch: is 40, want 30 as before: the checkpoint of step 50 is in the midst "
      "of epoch 1; go on with the former number, or from a checkpoint at an epoch's end (step 60 "
      "is one)");
  // A job that is one epoch may go on with more steps.
  CHECK(CheckBatchSize(saved, TensorFacts(2, 200, 0)).ok());
}

TEST_CASE("what workers report as score is averaged over their rows", "[control][tensors]") {
  ControlFixture control(TensorFacts(2, 100, 10));
  StartWithoutRows(&control, 2);
  Evaluate(&control, 10, {{25.0}, {35.0}});
  CHECK(Last(control).test_accuracy() == 3);
  CHECK(Last(control).test_loss() == 2);
  CHECK((Last(control).precision_at().empty() && Last(control).top_k_accuracy().empty()));
  // One without a score, as it has no test rows perhaps, does not count.
  Evaluate(&control, 20, {{25.0}, std::nullopt});
  CHECK(Last(control).test_accuracy() == 2.5);
  Evaluate(&control, 30, {std::nullopt, std::nullopt});
  CHECK(std::isnan(Last(control).test_accuracy()));
}

TEST_CASE("training ends at a score that is high enough, or low enough", "[control][tensors]") {
  const bool minimises = GENERATE(false, true);
  JobFacts facts = TensorFacts(1, 100, 10);
  facts.target_accuracy = 2;
  facts.minimises = minimises;
  ControlFixture control(facts);
  StartWithoutRows(&control, 1);
  const auto is_over = [&](uint64_t step, std::optional<double> score) {
    control.answers.clear();
    Evaluate(&control, step, {score});
    REQUIRE_FALSE(control.answers.empty());
    return control.answers.back().reply->stop();
  };
  CHECK_FALSE(is_over(10, minimises ? 30.0 : 10.0));
  CHECK_FALSE(is_over(20, std::nullopt));
  CHECK_FALSE(is_over(30, std::numeric_limits<double>::quiet_NaN()));
  CHECK(is_over(40, 20.0));
}

TEST_CASE("a job of tensors has steps", "[control][tensors]") {
  JobFacts facts = TensorFacts(1, 0, 10);
  facts.epochs = 3;
  CHECK(absl::IsInvalidArgument(CheckFacts(facts)));
}

}  // namespace tessera
