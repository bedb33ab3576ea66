// A simulated worker at an evaluation: it arrives, reads what all score, and goes on or ends.
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/sim/sim_worker.h"

namespace tessera {

void SimWorker::Evaluate(v1::EvaluateStage stage) {
  doing_ = absl::StrCat("evaluating, stage ", stage);
  v1::EvaluateRequest request;
  request.set_member(member_.value());
  request.set_evaluation(evaluation_ == 0 ? 0 : evaluation_ + (stage == v1::ARRIVE ? 1 : 0));
  request.set_attempt(attempt_);
  request.set_stage(stage);
  *request.mutable_progress() = ProgressText();
  if (stage == v1::SCORE) {
    request.mutable_scores()->set_rows(1);
    for (int i = 0; i < 3; ++i) request.mutable_scores()->add_precision_hits(0);
  }
  request.set_last(last_);
  Retry<v1::EvaluateReply>(
      [this, request](auto done) { coordinator_->Evaluate(node_, request, done); },
      [this, stage](absl::StatusOr<v1::EvaluateReply> reply) {
        if (!reply.ok()) return GiveUp(reply.status());
        OnEvaluated(stage, *reply);
      });
}

void SimWorker::Arrive() {
  evaluated_ = ProgressText();
  if (rest_.rests || options_.lockstep) return Evaluate(v1::ARRIVE);
  NextRest();
  ReadOutside(/*evaluates=*/false, [this] { Evaluate(v1::ARRIVE); });
}

void SimWorker::ReadOutside(bool evaluates, std::function<void()> then) {
  doing_ = absl::StrCat("reading at an evaluation after ", exchange_.value());
  const auto missing = std::make_shared<size_t>(doors_.size());
  for (size_t server = 0; server < doors_.size(); ++server) {
    CallShard<ReadOfMoment>(
        server, CallKind::kOther,
        [member = member_, after = exchange_, word = rest_](SimServer* from, auto answer) {
          from->ReadOutside(member, after, word, answer);
        },
        [this, server, missing, evaluates, then](const absl::StatusOr<ReadOfMoment>& read) {
          if (!read.ok()) return GiveUp(read.status());
          checker_->OnTold(ShardId(server), member_, read->known);
          const bool is_early = options_.mutation == Mutation::kEvaluatesEarly && evaluates;
          if (!is_early) versions_[server] = read->known.version;
          if (evaluates && read->in_round && options_.subnets != nullptr) {
            CheckIsRemoved("evaluates values of the middle of a round");
          }
          if (--*missing == 0) then();
        });
  }
}

void SimWorker::OnEvaluated(v1::EvaluateStage stage, const v1::EvaluateReply& reply) {
  attempt_ = reply.attempt();
  if (reply.restart()) {
    checker_->OnEvaluationRestarts();
    // Back to the same evaluation.
    evaluation_ = evaluation_ == 0 ? 0 : reply.evaluation() - 1;
    return Arrive();
  }
  evaluation_ = reply.evaluation();
  // It ends its rest before anybody goes on, so that none gets ahead of it.
  rest_.rests = false;
  if (!reply.finished() && stage == v1::ARRIVE) {
    return ReadOutside(/*evaluates=*/true, [this, reply] {
      checker_->OnEvaluates(member_, {evaluation_, attempt_}, reply.part(), reply.parts(),
                            versions_);
      Evaluate(v1::CALIBRATE);
    });
  }
  if (!reply.finished() && stage == v1::CALIBRATE) {
    checker_->OnScores(member_, {evaluation_, attempt_});
    return Evaluate(v1::SCORE);
  }
  evaluation_due_ = false;
  const bool leaves_early = options_.mutation == Mutation::kLeavesEarly && rank_ == Rank(0);
  if (reply.stop() || last_ || leaves_early) {
    return SaveLast(/*saved=*/0);
  }
  if (reply.finished()) return ReadOutside(/*evaluates=*/false, [this] { Train(); });
  Train();
}

}  // namespace tessera
