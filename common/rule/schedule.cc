#include "common/rule/schedule.h"

#include <algorithm>
#include <cmath>

namespace tessera {
namespace {

// The factor of the decay alone, before an update to which the job had learned from `before` examples.
double Decay(const v1::RateDecay& decay, double before) {
  if (decay.has_step()) {
    return std::pow(decay.step().factor(), std::floor(before / decay.step().every()));
  }
  if (decay.has_cosine()) {
    const double done = std::min(1.0, before / decay.cosine().examples());
    const double floor = decay.cosine().floor();
    return floor + (1 - floor) * (1 + std::cos(M_PI * done)) / 2;
  }
  return 1;
}

}  // namespace

double RateSchedule::Factor(uint64_t before, uint64_t own) const {
  double factor = Decay(schedule_.decay(), static_cast<double>(before));
  if (schedule_.warmup() > 0) {
    factor *= std::min(1.0, static_cast<double>(before + own) / schedule_.warmup());
  }
  return factor;
}

}  // namespace tessera
