#include "deploy/simulate/worker_pace.h"

#include <algorithm>
#include <cmath>

#include "deploy/simulate/chance.h"

namespace tessera {
namespace {

// A time that has been multiplied; beyond the simulation's end it is that end.
SimNanos Scaled(SimNanos time, double factor) {
  const double scaled = static_cast<double>(time) * factor;
  return scaled < static_cast<double>(kSimEnd) ? std::llround(scaled) : kSimEnd;
}

SimNanos Spread(SimNanos time, double spread, double uniform) {
  return Scaled(time, 1 + spread * (2 * uniform - 1));
}

}  // namespace

HalfPace HalfPaceOf(const StepShare& share, const LayerSplit& split, Rank rank) {
  HalfPace pace;
  const ParameterRange range = split.range(rank);
  if (split.is_linear(rank)) {
    pace.answer = share.Of(range);
  } else {
    pace.forward = share.ForwardOf(range);
    pace.backward = share.Of(range) - pace.forward;
  }
  return pace;
}

SimNanos StepTimeOf(uint64_t seed, uint64_t worker, SimNanos step_time, const SpeedSpread& speeds) {
  const SimNanos time =
      Spread(step_time, speeds.spread, UniformChance(seed, kChanceSpeed, worker, 0));
  return worker == 0 ? Scaled(time, speeds.slow_worker) : time;
}

absl::Status PacedWork::Work(SimNanos work) {
  const uint64_t ticket = process_.Ticket();
  world_.machines[machine_]->Run(work, [this, ticket] { process_.Wake(ticket); });
  return process_.Wait() ? absl::OkStatus() : absl::CancelledError("cancelled");
}

absl::Status PacedWork::Train(uint64_t step, double share) {
  SimNanos time = Scaled(pace_.step_time, share);
  if (pace_.jitter > 0) {
    time = Spread(time, pace_.jitter, UniformChance(pace_.seed, kChanceJitter, pace_.worker, step));
  }
  return Work(time);
}

absl::Status PacedWork::Evaluate(size_t rows) {
  if (!pace_.evaluates) return Work(0);
  const __int128 time = static_cast<__int128>(pace_.step_time) * rows / (3 * pace_.batch_size);
  return Work(static_cast<SimNanos>(std::min(time, static_cast<__int128>(kSimEnd))));
}

}  // namespace tessera
