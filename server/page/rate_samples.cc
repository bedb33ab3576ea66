#include "server/page/rate_samples.h"

#include <algorithm>

#include "server/control/traffic_sum.h"

namespace tessera {

void RateSamples::Add(const v1::JobStatus& status) {
  const v1::Traffic traffic = TrafficOf(status);
  const Seen seen{status.wall_seconds(), static_cast<double>(traffic.pull_wire_bytes()) +
                                             static_cast<double>(traffic.push_wire_bytes())};
  if (!last_.has_value()) {
    last_ = seen;
    return;
  }
  const double passed = seen.seconds - last_->seconds;
  if (passed < interval_) return;
  // What was moved falls where the job goes back, and whoever goes on in the coordinator's place may know less.
  samples_.push_back({seen.seconds, status.examples_per_second(),
                      std::max(0.0, seen.bytes - last_->bytes) / passed});
  last_ = seen;
  if (samples_.size() < kRateSamplesMax) return;
  std::vector<RateSample> halves;
  for (size_t i = 0; i + 1 < samples_.size(); i += 2) {
    const RateSample &a = samples_[i], &b = samples_[i + 1];
    halves.push_back({b.seconds, (a.examples_per_second + b.examples_per_second) / 2,
                      (a.bytes_per_second + b.bytes_per_second) / 2});
  }
  samples_ = std::move(halves);
  interval_ *= 2;
}

}  // namespace tessera
