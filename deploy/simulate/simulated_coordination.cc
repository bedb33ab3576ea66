#include "deploy/simulate/simulated_coordination.h"

#include "common/base/check.h"

namespace tessera {
namespace {

// That of worker/rpc/coordinator_client.cc.
constexpr SimNanos kPollInterval = kNanosPerSecond / 20;

}  // namespace

absl::Status SimulatedCoordination::BeginTraining() {
  return coordinator_.Ask(&process_, machine_, [this](Coordinator& coordinator, absl::Time now) {
    return coordinator.BeginTraining(member_, now);
  });
}

absl::Status SimulatedCoordination::EndWarmUp() {
  while (true) {
    v1::RenewRequest request;
    request.set_member(member_.value());
    *request.mutable_progress() = ToProto(progress_);
    request.set_drain_seen(drain_exchange_.value());
    request.set_ends_warm_up(true);
    TESSERA_ASSIGN_OR_RETURN(
        const v1::RenewReply reply,
        coordinator_.Ask(&process_, machine_, [&](Coordinator& coordinator, absl::Time now) {
          return coordinator.Renew(request, now);
        }));
    if (reply.begin_first().empty()) return absl::OkStatus();
    const uint64_t ticket = process_.Ticket();
    // Asked again and again, as the worker does.
    world_.events.After(kPollInterval, [process = &process_, ticket] { process->Wake(ticket); });
    if (!process_.Wait()) return absl::CancelledError("cancelled");
  }
}

absl::StatusOr<v1::EpochCut> SimulatedCoordination::AskEpoch(uint64_t epoch, uint64_t step) {
  v1::BeginEpochRequest request;
  request.set_member(member_.value());
  request.set_epoch(epoch);
  request.set_step(step);
  return coordinator_.Ask(&process_, machine_, [&](Coordinator& coordinator, absl::Time now) {
    return coordinator.BeginEpoch(request, now);
  });
}

absl::StatusOr<v1::EvaluateReply> SimulatedCoordination::AskEvaluation(
    v1::EvaluateRequest request) {
  request.set_member(member_.value());
  const bool begins = request.stage() == v1::ARRIVE && request.attempt() == 0;
  // Evaluations are numbered as worker/rpc/coordinator_client.cc numbers them.
  request.set_evaluation(begins && evaluation_ > 0 ? evaluation_ + 1 : evaluation_);
  TESSERA_ASSIGN_OR_RETURN(v1::EvaluateReply reply,
                           coordinator_.Evaluate(&process_, machine_, request));
  evaluation_ = reply.evaluation();
  return reply;
}

}  // namespace tessera
