#include "worker/train/message_coordination.h"

#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/base/check.h"
#include "worker/train/phase_timer.h"

namespace tessera {
namespace {

// A job has no more minibatches (common/consistency/plan.h).
constexpr uint64_t kStepsEnd = uint64_t{1} << 40;

absl::Status Wrong(absl::string_view what) {
  return absl::InternalError(absl::StrCat(what, "; all must run the same build"));
}

// So many epochs that are over are asked for in a row.
constexpr uint64_t kEpochsOverMax = 4096;

EvaluationResult ResultOf(const v1::EvaluateReply& reply) {
  EvaluationResult result;
  result.test_loss = reply.test_loss();
  result.test_accuracy = reply.test_accuracy();
  result.stop = reply.stop();
  return result;
}

}  // namespace

v1::Progress ToProto(const TrainProgress& progress) {
  v1::Progress result;
  result.set_step(progress.step);
  result.set_exchange(progress.exchange);
  result.set_examples(progress.examples);
  result.set_epoch(progress.epoch);
  if (progress.train_loss.has_value()) result.set_train_loss(*progress.train_loss);
  result.set_steps_per_second(progress.steps_per_second);
  result.set_speed_steps(progress.speed_steps);
  result.set_batch_rows(progress.batch_rows);
  result.set_work(static_cast<v1::Progress::Work>(progress.work));
  result.set_beats(progress.beats);
  v1::Traffic& traffic = *result.mutable_traffic();
  traffic.set_exchanges(progress.traffic.exchanges);
  traffic.set_pull_payload_bytes(progress.traffic.pull_payload_bytes);
  traffic.set_push_payload_bytes(progress.traffic.push_payload_bytes);
  traffic.set_pull_wire_bytes(progress.traffic.pull_wire_bytes);
  traffic.set_push_wire_bytes(progress.traffic.push_wire_bytes);
  traffic.set_other_payload_bytes(progress.traffic.other_payload_bytes);
  traffic.set_shared_memory_bytes(progress.traffic.shared_memory_bytes);
  const auto seconds = [&progress](Phase phase) {
    return progress.phases[static_cast<size_t>(phase)];
  };
  v1::Phases& phases = *result.mutable_phases();
  phases.set_compute_seconds(seconds(Phase::kCompute));
  phases.set_pull_seconds(seconds(Phase::kPull));
  phases.set_push_seconds(seconds(Phase::kPush));
  phases.set_wait_seconds(seconds(Phase::kWait));
  phases.set_evaluate_seconds(seconds(Phase::kEvaluate));
  return result;
}

absl::StatusOr<EpochCut> MessageCoordination::BeginEpoch(uint64_t epoch, uint64_t step) {
  TESSERA_ASSIGN_OR_RETURN(const v1::EpochCut reply, AskEpoch(epoch, step));
  if (reply.parts() == 0 || reply.part() > reply.parts()) {
    return Wrong(absl::StrCat("epoch ", epoch, ": part is ", reply.part(), " of ", reply.parts(),
                              ", want one of 1 or more, or the one behind the last"));
  }
  if (reply.first_step() > step) {
    return Wrong(absl::StrCat("epoch ", epoch, ": begins at step ", reply.first_step(),
                              ", want at most ", step, ", where this worker is"));
  }
  if (reply.steps() >= kStepsEnd || reply.rows_total() >= kStepsEnd) {
    return Wrong(absl::StrCat("epoch ", epoch, ": has ", reply.steps(), " steps of ",
                              reply.rows_total(), " rows, want less than 2^40"));
  }
  if (reply.batch_rows() >= kStepsEnd || reply.rows_before() >= kStepsEnd) {
    return Wrong(absl::StrCat("epoch ", epoch, ": has minibatches of ", reply.batch_rows(),
                              " rows behind ", reply.rows_before(), ", want less than 2^40"));
  }
  // Some may be over where others have joined meanwhile. A worker that is told of such ones alone would ask for ever.
  const bool is_over = reply.first_step() + reply.steps() <= step;
  epochs_over_ = is_over ? epochs_over_ + 1 : 0;
  if (epochs_over_ > kEpochsOverMax) {
    return Wrong(absl::StrCat("epoch ", epoch, ": is over at step ", step, ", as are the ",
                              kEpochsOverMax, " before it, want one that this worker can begin"));
  }
  EpochCut cut;
  cut.parts = reply.parts();
  cut.part = reply.part();
  cut.steps = reply.steps();
  cut.first_step = reply.first_step();
  cut.rows_total = reply.rows_total();
  cut.batch_rows = reply.batch_rows();
  cut.rows_before = reply.rows_before();
  return cut;
}

absl::StatusOr<EvaluationPlace> MessageCoordination::Arrive(const Arrival& arrival) {
  v1::EvaluateRequest request;
  request.set_stage(v1::ARRIVE);
  request.set_attempt(attempt_);
  *request.mutable_progress() = ToProto(arrival.progress);
  request.set_loss_sum(arrival.loss_sum);
  request.set_loss_count(arrival.loss_count);
  request.set_last(arrival.last);
  request.set_round(arrival.progress.exchange);
  TESSERA_ASSIGN_OR_RETURN(const v1::EvaluateReply reply, AskEvaluation(std::move(request)));
  EvaluationPlace place;
  place.attempt = reply.attempt();
  // One that begins anew, or is over without this member, has no part for it.
  if (!reply.restart() && !reply.finished()) {
    if (reply.part() >= reply.parts()) {
      return Wrong(absl::StrCat("evaluation: part is ", reply.part(), " of ", reply.parts(),
                                ", want one of them"));
    }
    place.parts = reply.parts();
    place.part = reply.part();
  }
  if (reply.restart()) attempt_ = reply.attempt();
  if (reply.finished()) {
    attempt_ = 0;
    place.finished = ResultOf(reply);
  }
  return place;
}

absl::StatusOr<std::optional<std::vector<float>>> MessageCoordination::ShareConstants(
    const EvaluationPlace& place, std::vector<float> constants) {
  v1::EvaluateRequest request;
  request.set_stage(v1::CALIBRATE);
  request.set_attempt(place.attempt);
  request.set_constants(reinterpret_cast<const char*>(constants.data()),
                        constants.size() * sizeof(float));
  TESSERA_ASSIGN_OR_RETURN(const v1::EvaluateReply reply, AskEvaluation(std::move(request)));
  if (reply.restart() || reply.finished()) {
    attempt_ = reply.attempt();
    return std::optional<std::vector<float>>();
  }
  const std::string& bytes = reply.constants();
  if (bytes.size() % sizeof(float) != 0) {
    return absl::InternalError(
        absl::StrCat("evaluation: constants are ", bytes.size(), " bytes, want whole floats"));
  }
  std::vector<float> shared(bytes.size() / sizeof(float));
  if (!bytes.empty()) std::memcpy(shared.data(), bytes.data(), bytes.size());
  return std::optional<std::vector<float>>(std::move(shared));
}

absl::StatusOr<std::optional<EvaluationResult>> MessageCoordination::Score(
    const EvaluationPlace& place, const EvaluationScores& scores) {
  v1::EvaluateRequest request;
  request.set_stage(v1::SCORE);
  request.set_attempt(place.attempt);
  v1::Scores& sums = *request.mutable_scores();
  sums.set_loss_sum(scores.loss_sum);
  sums.set_correct(scores.correct);
  sums.set_rows(scores.rows);
  if (scores.score_sum) sums.set_score_sum(*scores.score_sum);
  if (scores.counts_hits) {
    for (const double hits : scores.precision_hits) sums.add_precision_hits(hits);
  }
  if (scores.top_hits) sums.add_precision_hits(*scores.top_hits);
  TESSERA_ASSIGN_OR_RETURN(const v1::EvaluateReply reply, AskEvaluation(std::move(request)));
  attempt_ = reply.restart() ? reply.attempt() : 0;
  if (reply.restart()) return std::optional<EvaluationResult>();
  return std::optional<EvaluationResult>(ResultOf(reply));
}

}  // namespace tessera
