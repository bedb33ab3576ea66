#include "common/rule/schedule.h"

#include <algorithm>
#include <cmath>

namespace tessera {
namespace {

// The factor of the decay alone, before an update to which the job had learned from `before` examples.
double Decay(const v1::RateDecay& decay, double before) {
  if (decay.has_step()) {
    // Whole steps only: the rate falls at each multiple of `every`, and stays in between.
    return std::pow(decay.step().factor(), std::floor(before / decay.step().every()));
  }
  if (decay.has_cosine()) {
    // After the last example of the decay the rate stays at the floor.
    const double done = std::min(1.0, before / decay.cosine().examples());
    const double floor = decay.cosine().floor();
    // From 1 down to the floor along half a cosine (Loshchilov and Hutter, SGDR, 2017).
    return floor + (1 - floor) * (1 + std::cos(M_PI * done)) / 2;
  }
  if (decay.has_milestones()) {
    const auto& at = decay.milestones().at();
    // A mark counts from the update that begins with so many examples.
    const auto passed =
        std::count_if(at.begin(), at.end(), [&](double mark) { return before >= mark; });
    return std::pow(decay.milestones().factor(), static_cast<double>(passed));
  }
  if (decay.has_linear()) {
    const double floor = decay.linear().floor();
    return 1 - (1 - floor) * std::min(1.0, before / decay.linear().examples());
  }
  return 1;
}

}  // namespace

bool RateSchedule::is_constant() const {
  // A decay that is not given is constant.
  const v1::RateDecay::KindCase kind = schedule_.decay().kind_case();
  return schedule_.warmup() == 0 &&
         (kind == v1::RateDecay::kConstant || kind == v1::RateDecay::KIND_NOT_SET);
}

double RateSchedule::Factor(uint64_t before, uint64_t own) const {
  double factor = Decay(schedule_.decay(), static_cast<double>(before));
  // The warm-up rises linearly and reaches 1 with the update that completes it.
  if (schedule_.warmup() > 0) {
    factor *= std::min(1.0, static_cast<double>(before + own) / schedule_.warmup());
  }
  return factor;
}

}  // namespace tessera
