#include "deploy/simulate/simulated_process.h"

#include <utility>

#include "common/base/check.h"

namespace tessera {

absl::StatusOr<std::unique_ptr<SimulatedProcess>> SimulatedProcess::Create(
    std::function<void()> body, size_t stack_bytes) {
  std::unique_ptr<SimulatedProcess> process(new SimulatedProcess());
  TESSERA_ASSIGN_OR_RETURN(process->fiber_, Fiber::Create(std::move(body), stack_bytes));
  return process;
}

SimulatedProcess::~SimulatedProcess() {
  // A body that waits goes on once more, and is told that all is over.
  ending_ = true;
  if (fiber_ != nullptr && fiber_->started() && !fiber_->ended()) fiber_->Resume();
}

bool SimulatedProcess::WaitFor(bool interruptible) {
  TESSERA_CHECK(Fiber::current() == fiber_.get());
  ++ticket_;
  // A process that is to end does not wait any more.
  if (ending_ || (interruptible && interrupted_)) return false;
  waiting_ = true;
  interruptible_ = interruptible;
  Fiber::Park();
  waiting_ = false;
  return !ending_ && !(interruptible && interrupted_);
}

void SimulatedProcess::Wake(uint64_t ticket) {
  // Meant for an earlier wait, or a process that is gone.
  if (!waiting_ || ticket != ticket_ || crashed_) return;
  fiber_->Resume();
}

void SimulatedProcess::Interrupt() {
  interrupted_ = true;
  if (waiting_ && interruptible_ && !crashed_) fiber_->Resume();
}

}  // namespace tessera
