#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <map>
#include <vector>

#include "nlohmann/json.hpp"
#include "server/control/report.h"
#include "tests/server/control/control_fixture.h"

namespace tessera {
namespace {

using Fixture = ControlFixture;

// One worker's whole evaluation but for the waiting.
void Score(Fixture& f, const std::vector<uint64_t>& members, uint64_t step, uint64_t evaluation,
           uint64_t correct = 5) {
  for (uint64_t m : members) REQUIRE(f.Evaluate(m, v1::ARRIVE, step, 0, evaluation).ok());
  const uint64_t attempt = (*f.Answer(members[0]))->attempt();
  for (uint64_t m : members) REQUIRE(f.Evaluate(m, v1::CALIBRATE, step, attempt, evaluation).ok());
  for (uint64_t m : members) {
    REQUIRE(f.Evaluate(m, v1::SCORE, step, attempt, evaluation, correct).ok());
  }
  f.answers.clear();
}

TEST_CASE("an evaluation waits for all, shares constants and adds scores up", "[control]") {
  Fixture f(Fixture::Facts(1, 2));
  f.Start(2);
  REQUIRE(f.coordinator->BeginTraining(MemberId(2), f.now).ok());
  f.now += absl::Seconds(3);
  REQUIRE(f.Evaluate(2, v1::ARRIVE, 5).ok());
  f.now += absl::Seconds(2);
  CHECK(!f.Answer(2));
  CHECK(f.coordinator->Status(f.now).train_seconds() == 5);
  REQUIRE(f.Evaluate(1, v1::ARRIVE, 5).ok());
  auto one = f.Answer(1), two = f.Answer(2);
  REQUIRE((one && two));
  CHECK((*one)->part() == 0);
  CHECK((*two)->part() == 1);
  CHECK((*two)->parts() == 2);
  // The clock stands now.
  f.now += absl::Seconds(7);
  CHECK(f.coordinator->Status(f.now).train_seconds() == 5);
  CHECK(f.coordinator->Status(f.now).state() == "evaluating");
  REQUIRE(f.Evaluate(2, v1::CALIBRATE, 5, 1, 1).ok());
  CHECK(!f.Answer(2));
  REQUIRE(f.Evaluate(1, v1::CALIBRATE, 5, 1, 1).ok());
  CHECK((*f.Answer(2))->constants() == "from 1");
  REQUIRE(f.Evaluate(1, v1::SCORE, 5, 1, 1, 9).ok());
  CHECK((*f.Answer(1))->constants() == "from 1");
  CHECK(!f.Answer(1));
  REQUIRE(f.Evaluate(2, v1::SCORE, 5, 1, 1, 2).ok());
  two = f.Answer(2);
  CHECK((*two)->test_accuracy() == 11.0 / 20);
  CHECK((*two)->test_loss() == 3.0 / 20);
  CHECK((*two)->train_seconds() == 5);
  CHECK(!(*two)->stop());
  f.now += absl::Seconds(1);
  const v1::JobStatus status = f.coordinator->Status(f.now);
  CHECK(status.train_seconds() == 6);
  REQUIRE(status.history_size() == 1);
  CHECK(status.history(0).train_loss() == 6.0 / 8);
  CHECK(status.history(0).step() == 5);
  // A repeated request, because its answer was lost, gets the result.
  REQUIRE(f.Evaluate(1, v1::SCORE, 5, 1, 1, 9).ok());
  CHECK((*f.Answer(1))->test_accuracy() == 11.0 / 20);
  REQUIRE(f.Evaluate(1, v1::SCORE, 5, 1, 1, 9).ok());
  CHECK((*f.Answer(1))->finished());
  CHECK(absl::IsInvalidArgument(f.Evaluate(1, v1::ARRIVE, 9, 0, 3)));
}

TEST_CASE("sums of an evaluation are added in rank order, whoever comes first", "[control]") {
  std::vector<uint64_t> order = {1, 2, 3};
  // Added with the third before the second they are 1.
  const std::map<uint64_t, double> losses = {{1, 1e16}, {2, 1}, {3, -1e16}};
  do {
    CAPTURE(order);
    Fixture f(Fixture::Facts(1, 3));
    f.Start(3);
    for (const v1::EvaluateStage stage : {v1::ARRIVE, v1::CALIBRATE, v1::SCORE}) {
      for (const uint64_t m : order) {
        v1::EvaluateRequest request;
        request.set_member(m);
        request.set_stage(stage);
        request.set_evaluation(1);
        request.set_attempt(1);
        request.mutable_progress()->set_step(5);
        request.set_loss_sum(losses.at(m));
        request.set_loss_count(1);
        request.mutable_scores()->set_rows(1);
        request.mutable_scores()->set_loss_sum(losses.at(m));
        REQUIRE(f.Evaluate(request).ok());
      }
    }
    const v1::JobStatus status = f.coordinator->Status(f.now);
    REQUIRE(status.history_size() == 1);
    CHECK(status.history(0).train_loss() == 0);
    CHECK(status.history(0).test_loss() == 0);
  } while (std::next_permutation(order.begin(), order.end()));
}

TEST_CASE("where rows have one label the status has how often the first predictions have it",
          "[control]") {
  const bool single = GENERATE(true, false);
  const bool ten = GENERATE(true, false);  // there are more than 10 outputs
  JobFacts facts = Fixture::Facts(1, 1);
  facts.single_labels = single;
  Fixture f(facts);
  f.Start(1);
  for (const v1::EvaluateStage stage : {v1::ARRIVE, v1::CALIBRATE, v1::SCORE}) {
    v1::EvaluateRequest request;
    request.set_member(1);
    request.set_stage(stage);
    request.set_evaluation(1);
    request.set_attempt(1);
    request.mutable_scores()->set_rows(8);
    request.mutable_scores()->set_correct(2);
    for (const double hits : {2, 6, 8}) request.mutable_scores()->add_precision_hits(hits);
    if (ten) request.mutable_scores()->add_precision_hits(8);
    REQUIRE(f.Evaluate(request).ok());
  }
  const v1::JobStatus status = f.coordinator->Status(f.now);
  REQUIRE(status.history_size() == 1);
  const v1::HistoryEntry& entry = status.history(0);
  REQUIRE(entry.precision_at_size() == 3);
  CHECK(entry.precision_at(1) == 0.25);
  CHECK(entry.precision_at(2) == 0.2);
  REQUIRE(entry.top_k_accuracy_size() == (!single ? 0 : ten ? 4 : 3));
  if (!single) return;
  CHECK(entry.top_k_accuracy(0) == entry.test_accuracy());
  CHECK(entry.top_k_accuracy(1) == 0.75);
  CHECK(entry.top_k_accuracy(2) == 1);
  if (ten) CHECK(entry.top_k_accuracy(3) == 1);
}

TEST_CASE("where a worker counts no hits none are shown, and its accuracy counts", "[control]") {
  const bool counts = GENERATE(true, false);
  JobFacts facts = Fixture::Facts(1, 1);
  facts.single_labels = true;
  Fixture f(facts);
  f.Start(1);
  for (const v1::EvaluateStage stage : {v1::ARRIVE, v1::CALIBRATE, v1::SCORE}) {
    v1::EvaluateRequest request;
    request.set_member(1);
    request.set_stage(stage);
    request.set_evaluation(1);
    request.set_attempt(1);
    request.mutable_scores()->set_rows(8);
    request.mutable_scores()->set_correct(6);
    for (int i = 0; counts && i < 3; ++i) request.mutable_scores()->add_precision_hits(8);
    REQUIRE(f.Evaluate(request).ok());
  }
  const v1::JobStatus status = f.coordinator->Status(f.now);
  REQUIRE(status.history_size() == 1);
  CHECK(status.history(0).test_accuracy() == 0.75);
  CHECK(status.history(0).precision_at_size() == (counts ? 3 : 0));
  CHECK(status.history(0).top_k_accuracy_size() == (counts ? 3 : 0));
  const auto report = nlohmann::json::parse(ReportJson(status));
  CHECK(report["final"]["precision_at"]["1"].is_null() != counts);
}

TEST_CASE("where the output is a number an evaluation has a loss, and nothing is right or wrong",
          "[control]") {
  JobFacts facts = Fixture::Facts(1, 1);
  facts.predicts_classes = false;
  Fixture f(facts);
  f.Start(1);
  for (const v1::EvaluateStage stage : {v1::ARRIVE, v1::CALIBRATE, v1::SCORE}) {
    v1::EvaluateRequest request;
    request.set_member(1);
    request.set_stage(stage);
    request.set_evaluation(1);
    request.set_attempt(1);
    request.mutable_scores()->set_rows(8);
    request.mutable_scores()->set_loss_sum(2);
    for (int i = 0; i < 3; ++i) request.mutable_scores()->add_precision_hits(0);
    REQUIRE(f.Evaluate(request).ok());
  }
  const v1::JobStatus status = f.coordinator->Status(f.now);
  REQUIRE(status.history_size() == 1);
  CHECK(status.history(0).test_loss() == 0.25);
  CHECK(std::isnan(status.history(0).test_accuracy()));
  CHECK(status.history(0).precision_at_size() == 0);
  CHECK(status.history(0).top_k_accuracy_size() == 0);
  const auto report = nlohmann::json::parse(ReportJson(status));
  CHECK(report["final"]["test_accuracy"].is_null());
  CHECK(report["final"]["precision_at"]["1"].is_null());
  CHECK(report["history"][0]["test_accuracy"].is_null());
}

TEST_CASE("an evaluation ends although a member is lost at any stage", "[control]") {
  const int lost_at = GENERATE(0, 1, 2, 3);
  const uint64_t lost = GENERATE(1, 2, 3);
  Fixture f(Fixture::Facts(1, 3));
  f.Start(3);
  std::vector<uint64_t> rest;
  for (uint64_t m : {1, 2, 3}) {
    if (m != lost) rest.push_back(m);
  }
  const v1::EvaluateStage stages[] = {v1::ARRIVE, v1::CALIBRATE, v1::SCORE};
  for (int stage = 0; stage < std::min(lost_at, 3); ++stage) {
    for (uint64_t m : {1, 2, 3}) {
      if (stage == 2 && m == rest[1]) continue;  // Scores of two are in when the third is lost.
      REQUIRE(f.Evaluate(m, stages[stage], 5, 1, 1).ok());
    }
    if (stage < 2) f.answers.clear();
  }
  if (lost_at == 0) {
    for (uint64_t m : rest) REQUIRE(f.Evaluate(m, v1::ARRIVE, 5, 0, 1).ok());
    CHECK(!f.Answer(rest[0]));
  }
  REQUIRE(f.Leave(lost, "killed").ok());
  f.StepAll();
  if (lost_at == 3) {
    // It was waiting: it hears that it was removed, the other that all begin again.
    CHECK(absl::IsFailedPrecondition(f.Answer(lost)->status()));
    CHECK((*f.Answer(rest[0]))->restart());
  }
  // The members that remain go on as they are told.
  for (int round = 0; round < 20; ++round) {
    for (uint64_t m : rest) {
      static std::map<uint64_t, int> stage_of;
      static std::map<uint64_t, uint64_t> attempt_of;
      if (round == 0) stage_of[m] = 0, attempt_of[m] = 0;
      if (round > 0) {
        auto answer = f.Answer(m);
        if (!answer) continue;
        attempt_of[m] = (*answer)->attempt();
        stage_of[m] = (*answer)->restart() ? 0 : stage_of[m] + 1;
      }
      if (stage_of[m] > 2) continue;
      REQUIRE(f.Evaluate(m, stages[stage_of[m]], 5, attempt_of[m], 1).ok());
    }
    if (f.coordinator->Status(f.now).history_size() == 1) break;
  }
  const v1::JobStatus status = f.coordinator->Status(f.now);
  REQUIRE(status.history_size() == 1);
  CHECK(status.history(0).test_accuracy() == 0.5);
  // Two workers' losses, not three.
  CHECK(status.history(0).train_loss() == 2.0 * (rest[0] + rest[1]) / 8);
}

TEST_CASE("nobody begins to evaluate before all servers know who is gone", "[control]") {
  Fixture f(Fixture::Facts(2, 3));
  f.Start(3);
  for (uint64_t m : {1, 2}) REQUIRE(f.Evaluate(m, v1::ARRIVE, 5).ok());
  REQUIRE(f.Leave(3, "killed").ok());
  CHECK(!f.Answer(1));
  while (f.Step(0)) continue;
  CHECK(!f.Answer(1));
  while (f.Step(1)) continue;
  CHECK((*f.Answer(1))->parts() == 2);
  CHECK((*f.Answer(2))->parts() == 2);
}

TEST_CASE("an old attempt is sent back to the beginning", "[control]") {
  Fixture f(Fixture::Facts(1, 3));
  f.Start(3);
  for (uint64_t m : {1, 2, 3}) REQUIRE(f.Evaluate(m, v1::ARRIVE, 5).ok());
  f.answers.clear();
  REQUIRE(f.Leave(3, "killed").ok());
  REQUIRE(f.Evaluate(1, v1::SCORE, 5, 1, 1).ok());
  auto answer = f.Answer(1);
  CHECK((*answer)->restart());
  CHECK((*answer)->attempt() == 2);
  CHECK(f.coordinator->Status(f.now).history_size() == 0);
}

TEST_CASE("training stops at the target accuracy", "[control]") {
  JobFacts facts = Fixture::Facts(1, 2);
  facts.target_accuracy = 0.9;
  Fixture f(facts);
  f.Start(2);
  for (uint64_t e : {1, 2}) {
    const uint64_t correct = e == 1 ? 8 : 9;
    for (uint64_t m : {1, 2}) REQUIRE(f.Evaluate(m, v1::ARRIVE, 5 * e, 0, e).ok());
    f.answers.clear();
    for (uint64_t m : {1, 2}) REQUIRE(f.Evaluate(m, v1::SCORE, 5 * e, 1, e, correct).ok());
    CHECK((*f.Answer(1))->stop() == (e == 2));
    f.answers.clear();
  }
  CHECK(absl::IsFailedPrecondition(f.Join().status()));
}

TEST_CASE("a late worker is not waited for by an evaluation before its first exchange",
          "[control]") {
  JobFacts facts = Fixture::Facts(1, 1);
  facts.epochs = 100;
  Fixture f(facts);
  f.Start(1);
  REQUIRE(f.Renew(1, 8, 8).ok());
  REQUIRE(f.Join().ok());
  f.StepAll();
  REQUIRE(f.StateOf(2) == MemberState::kAdmitted);
  Score(f, {1}, 9, 1);
  CHECK(f.coordinator->Status(f.now).history_size() == 1);
  // The next one has both; the newcomer does not know its number.
  REQUIRE(f.Evaluate(2, v1::ARRIVE, 18, 0, 0).ok());
  CHECK(!f.Answer(2));
  REQUIRE(f.Evaluate(1, v1::ARRIVE, 18, 0, 2).ok());
  CHECK((*f.Answer(2))->evaluation() == 2);
}

JobFacts WithoutBarrier() {
  JobFacts facts = Fixture::Facts(1, 2);
  facts.synchronous = false;
  facts.epochs = 100;
  return facts;
}

TEST_CASE("without a barrier nobody is let in while the others score", "[control]") {
  Fixture f(WithoutBarrier());
  f.Start(2);
  for (uint64_t m : {1, 2}) REQUIRE(f.Renew(m, 8, 8).ok());
  REQUIRE(f.Evaluate(1, v1::ARRIVE, 9, 0, 1).ok());
  REQUIRE(f.Evaluate(2, v1::ARRIVE, 9, 0, 1).ok());
  REQUIRE(f.Answer(1));
  REQUIRE(f.Join().ok());
  f.StepAll();
  REQUIRE(f.StateOf(3) == MemberState::kAdmitted);
  const auto held = f.Join(3);
  REQUIRE(held.ok());
  CHECK(!held->admitted());
  CHECK(Words(held->waiting_for()) == "the evaluation to end");
  // Who takes part asks again when the answer was lost.
  CHECK(f.Join(2)->admitted());
  for (uint64_t m : {1, 2}) REQUIRE(f.Evaluate(m, v1::CALIBRATE, 9, 1, 1).ok());
  for (uint64_t m : {1, 2}) REQUIRE(f.Evaluate(m, v1::SCORE, 9, 1, 1, 5).ok());
  REQUIRE(f.coordinator->Status(f.now).history_size() == 1);
  CHECK(f.Join(3)->admitted());
}

TEST_CASE("without a barrier a newcomer comes to the evaluation that others have yet to make",
          "[control]") {
  JobFacts facts = WithoutBarrier();
  facts.evaluate_every = 1;
  Fixture f(facts);
  f.Start(2);
  const auto begin = [&f](uint64_t member, uint64_t epoch) {
    v1::BeginEpochRequest request;
    request.set_member(member);
    request.set_epoch(epoch);
    request.set_step(5 * epoch);
    return f.coordinator->BeginEpoch(request, f.now);
  };
  for (uint64_t m : {1, 2})
    REQUIRE(begin(m, 0)->steps() == 5);  // 100 rows, 2 workers, batches of 10
  // Both are at the end of the epoch, and not at its evaluation yet.
  for (uint64_t m : {1, 2}) REQUIRE(f.Renew(m, 5, 5).ok());
  REQUIRE(f.Join().ok());
  f.StepAll();
  const auto joined = f.Join(3);
  REQUIRE(joined->admitted());
  CHECK(joined->first_step() == 5);
  CHECK(joined->epoch() == 1);
  CHECK(joined->evaluation_due());
  f.epoch = 1;
  for (uint64_t m : {1, 2}) REQUIRE(f.Evaluate(m, v1::ARRIVE, 5, 0, 1).ok());
  CHECK(!f.Answer(1));
  CHECK(Words(f.coordinator->Status(f.now).waiting_for()) == "worker 2");
  REQUIRE(f.Evaluate(3, v1::ARRIVE, 5).ok());
  CHECK((*f.Answer(3))->parts() == 3);
  f.answers.clear();
  for (uint64_t m : {1, 2, 3}) REQUIRE(f.Evaluate(m, v1::SCORE, 5, 1, 1).ok());
  REQUIRE(f.coordinator->Status(f.now).history_size() == 1);
  // It is over for whoever comes now.
  REQUIRE(f.Join().ok());
  f.StepAll();
  const auto later = f.Join(4);
  REQUIRE(later->admitted());
  CHECK(later->first_step() == 5);
  CHECK(!later->evaluation_due());
}

TEST_CASE("an evaluation that begins anew lets in who waited for its end", "[control]") {
  Fixture f(WithoutBarrier());
  f.Start(2);
  for (uint64_t m : {1, 2}) REQUIRE(f.Evaluate(m, v1::ARRIVE, 9, 0, 1).ok());
  REQUIRE(f.Join().ok());
  f.StepAll();
  REQUIRE(!f.Join(3)->admitted());
  REQUIRE(f.Leave(2).ok());
  f.StepAll();
  CHECK(f.Join(3)->admitted());
}

TEST_CASE("a drained job without barrier evaluates with everybody wherever they are", "[control]") {
  JobFacts facts = Fixture::Facts(1, 2);
  facts.synchronous = false;
  Fixture f(facts);
  f.Start(2);
  f.coordinator->Drain("test", f.now);
  CHECK(f.Renew(1)->drain_exchange() == 1);
  REQUIRE(f.Evaluate(1, v1::ARRIVE, 3).ok());
  CHECK(!f.Answer(1));
  REQUIRE(f.Evaluate(2, v1::ARRIVE, 7).ok());
  f.answers.clear();
  for (uint64_t m : {1, 2}) REQUIRE(f.Evaluate(m, v1::SCORE, 7, 1, 1).ok());
  CHECK((*f.Answer(2))->stop());
}

TEST_CASE("members that cannot go on alone are ended with the training", "[control]") {
  JobFacts facts = Fixture::Facts(1, 1);
  facts.target_accuracy = 0.1;
  facts.epochs = 100;
  Fixture f(facts);
  f.Start(1);
  REQUIRE(f.Renew(1, 8, 8).ok());
  REQUIRE(f.Join().ok());
  f.StepAll();
  Score(f, {1}, 9, 1);
  CHECK(f.StateOf(2) == MemberState::kLeft);
  REQUIRE(f.Leave(1).ok());
  f.StepAll();
  CHECK(f.coordinator->ended());
  CHECK(f.coordinator->outcome().ok());
}

TEST_CASE("scores that do not fit are refused", "[control]") {
  Fixture f(Fixture::Facts(1, 1));
  f.Start(1);
  REQUIRE(f.Evaluate(1, v1::ARRIVE, 5).ok());
  CHECK(absl::IsInvalidArgument(f.Evaluate(1, v1::SCORE, 5, 1, 1, 11)));
}

TEST_CASE("the first to begin an epoch fixes its cut", "[control][epochs]") {
  JobFacts facts = Fixture::Facts(1, 3);
  facts.epochs = 10;
  Fixture f(facts);
  f.Start(3);
  const auto begin = [&](uint64_t member, uint64_t epoch) {
    v1::BeginEpochRequest request;
    request.set_member(member);
    request.set_epoch(epoch);
    request.set_step(3 * epoch);
    return f.coordinator->BeginEpoch(request, f.now);
  };
  auto cut = begin(2, 0);  // 100 rows, 3 workers, batches of 10
  REQUIRE(cut.ok());
  CHECK(cut->steps() == 3);
  CHECK(cut->parts() == 3);
  CHECK(cut->part() == 1);
  CHECK(f.coordinator->Status(f.now).steps_planned() == 30);
  CHECK(absl::IsInvalidArgument(begin(2, 2).status()));
  REQUIRE(f.Leave(3, "killed").ok());
  REQUIRE(f.Renew(1, 1, 1).ok());
  // The part of the lost worker goes to who takes its rank; another newcomer has none.
  REQUIRE(f.Join().ok());
  REQUIRE(f.Join().ok());
  f.StepAll();
  CHECK(f.Join(4)->epoch() == 0);
  CHECK(begin(4, 0)->part() == 2);
  CHECK(begin(5, 0)->part() == 3);
  CHECK(begin(1, 0)->steps() == 3);
  cut = begin(1, 1);
  CHECK(cut->parts() == 4);
  CHECK(cut->steps() == 2);
  CHECK(cut->first_step() == 3);
  CHECK(f.coordinator->Status(f.now).steps_planned() == 3 + 9 * 2);
}

TEST_CASE("local rows are added up, and too few are an error", "[control][epochs]") {
  JobFacts facts = Fixture::Facts(1, 2);
  const bool local = GENERATE(true, false);
  facts.rows_are_local = local;
  facts.batch_size = 60;
  Fixture f(facts);
  f.Start(2);
  v1::BeginEpochRequest request;
  request.set_member(1);
  auto cut = f.coordinator->BeginEpoch(request, f.now);
  if (local) {
    CHECK(cut->steps() == 1);  // 2 x 100 rows
  } else {
    const std::string why =
        "epoch 0: training rows are 100, want at least 2 workers x 60; lower train.batch_size or "
        "the number of workers";
    CHECK(cut.status().message() == "the job has failed: " + why);
    CHECK(f.coordinator->outcome().message() == why);
  }
}

TEST_CASE("an arrival that comes long after it was asked again is none at the next evaluation",
          "[control]") {
  JobFacts facts = Fixture::Facts(1, 2);
  facts.synchronous = false;
  Fixture f(facts);
  f.Start(2);
  Score(f, {1, 2}, 5, 0);
  // Member 1 has come to the next one. Member 2 trains on, and its first arrival reaches the coordinator anew.
  REQUIRE(f.Evaluate(1, v1::ARRIVE, 10, 0, 2).ok());
  REQUIRE(f.Evaluate(2, v1::ARRIVE, 5).ok());
  const auto late = f.Answer(2);
  REQUIRE(late);
  CHECK((*late)->finished());
  CHECK((*late)->evaluation() == 1);
  CHECK(!f.Answer(1));
  CHECK(Words(f.coordinator->Status(f.now).waiting_for()) == "worker 1");
  REQUIRE(f.Evaluate(2, v1::ARRIVE, 10, 0, 2).ok());
  CHECK((*f.Answer(1))->parts() == 2);
}

TEST_CASE("whose first exchange would come after the last one begins at the end", "[control]") {
  JobFacts facts = Fixture::Facts(1, 1);
  facts.local_steps = 7;
  Fixture f(facts);
  f.Start(1);
  for (uint64_t epoch = 0; epoch < 2; ++epoch) {
    v1::BeginEpochRequest request;
    request.set_member(1);
    request.set_epoch(epoch);
    request.set_step(10 * epoch);
    REQUIRE(f.coordinator->BeginEpoch(request, f.now)->steps() == 10);
  }
  // 7, 7 and 6 steps.
  REQUIRE(f.Renew(1, 2, 14).ok());
  REQUIRE(f.Join().ok());
  f.StepAll();
  const auto admitted = f.Join(2);
  REQUIRE(admitted->admitted());
  CHECK(admitted->first_exchange() == 4);
  CHECK(admitted->epoch() == 2);
  CHECK(admitted->first_step() == 20);
}

TEST_CASE("who is admitted long after it was agreed on begins within an epoch that is known",
          "[control]") {
  JobFacts facts = Fixture::Facts(1, 1);
  facts.synchronous = false;
  facts.epochs = 10;
  Fixture f(facts);
  f.Start(1);
  const auto begin = [&f](uint64_t member, uint64_t epoch, uint64_t step) {
    v1::BeginEpochRequest request;
    request.set_member(member);
    request.set_epoch(epoch);
    request.set_step(step);
    return f.coordinator->BeginEpoch(request, f.now);
  };
  REQUIRE(begin(1, 0, 0).ok());
  // The server is slow to promise, and worker 0 trains on.
  const auto late = f.Join();
  REQUIRE(late.ok());
  for (uint64_t epoch = 1; epoch < 5; ++epoch) {
    REQUIRE(f.Renew(1, 10 * epoch, 10 * epoch).ok());
    REQUIRE(begin(1, epoch, 10 * epoch).ok());
  }
  f.StepAll();
  const auto admitted = f.Join(late->member());
  REQUIRE(admitted.ok());
  REQUIRE(admitted->admitted());
  const auto cut = begin(late->member(), admitted->epoch(), admitted->first_step());
  REQUIRE(cut.ok());
  CHECK(admitted->first_step() >= cut->first_step());
  CHECK(admitted->first_step() < cut->first_step() + cut->steps());
}

}  // namespace
}  // namespace tessera
