#include "server/control/members/job_stage.h"

namespace tessera {

void JobStage::Save(v1::MembershipState* state) const {
  state->set_started(started());
  state->set_paused(paused());
  state->set_training_over(training_over_);
  state->set_closed(closed());
  state->set_closed_failure(closed_failure());
  if (failure_) state->set_failure(*failure_);
}

void JobStage::Load(const v1::MembershipState& state) {
  stage_ = !state.started() ? Stage::kGathering : state.paused() ? Stage::kPaused : Stage::kRunning;
  training_over_ = state.training_over();
  closed_.reset();
  if (state.closed()) closed_ = state.closed_failure();
  failure_.reset();
  if (state.has_failure()) failure_ = state.failure();
}

}  // namespace tessera
