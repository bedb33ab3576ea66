#include "common/rule/adam.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "common/base/check.h"
#include "common/base/vector_clones.h"

namespace tessera {
namespace {

// Reads 16n bytes, writes 12n. Kingma and Ba (2015); with decoupled decay Loshchilov and Hutter (2019). m and v are the
// means of g and g^2, whose bias towards their start at 0 is taken out by step_size and root_scale.
TESSERA_VECTOR_CLONES
void AdamRun(const AdamCoefficients c, const float* u, const float* w_in, float* w_out,
             float* __restrict m, float* __restrict v, int64_t count) {
#pragma GCC ivdep
  for (int64_t i = 0; i < count; ++i) {
    const float w = w_in[i];
    const float g = c.scale * u[i] + c.coupled_decay * w;
    m[i] = c.beta1 * m[i] + c.beta1_rest * g;
    v[i] = c.beta2 * v[i] + c.beta2_rest * (g * g);
    // Rounding of averaged states may leave a square slightly below 0.
    const float root = std::sqrt(std::max(v[i], 0.0f)) * c.root_scale + c.epsilon;
    w_out[i] = (w - c.decoupled_decay * w) - c.step_size * (m[i] / root);
  }
}

// base^exponent by squaring: the libraries' pow may differ in the last bit from machine to machine.
double Power(double base, uint64_t exponent) {
  double power = 1;
  for (; exponent > 0; exponent >>= 1) {
    if ((exponent & 1) != 0) power *= base;
    base *= base;
  }
  return power;
}

class Adam final : public UpdateRule {
 public:
  explicit Adam(AdamOptions options) : options_(options) {}

  int state_count() const override { return 2; }

  void Apply(const Update& update, const float* u, const float* w_in, float* w_out,
             float* const* state, int64_t count) const override {
    AdamRun(CoefficientsOf(options_, update), u, w_in, w_out, state[0], state[1], count);
  }

 private:
  const AdamOptions options_;
};

}  // namespace

AdamCoefficients CoefficientsOf(const AdamOptions& o, const Update& update) {
  // The first update has number 1; 1 - beta^0 would be a division by 0.
  TESSERA_CHECK(update.number >= 1);
  // In f64 until the end, as 1 - beta^number loses most of f32's digits in the first updates.
  const double eta = o.learning_rate * update.rate;
  // Decoupled decay is scaled by the rate, since w shrinks by it directly; the other goes through g, which the rate
  // scales.
  const double decay = o.decoupled ? eta * o.weight_decay : o.weight_decay;
  AdamCoefficients c;
  c.scale = update.scale;
  (o.decoupled ? c.decoupled_decay : c.coupled_decay) = static_cast<float>(decay);
  c.beta1 = static_cast<float>(o.beta1);
  c.beta1_rest = static_cast<float>(1 - o.beta1);
  c.beta2 = static_cast<float>(o.beta2);
  c.beta2_rest = static_cast<float>(1 - o.beta2);
  c.step_size = static_cast<float>(eta / (1 - Power(o.beta1, update.number)));
  c.root_scale = static_cast<float>(1 / std::sqrt(1 - Power(o.beta2, update.number)));
  // Without an epsilon an entry whose gradients were all 0 would be 0 / 0.
  c.epsilon = std::max(static_cast<float>(o.epsilon), std::numeric_limits<float>::min());
  return c;
}

std::unique_ptr<UpdateRule> MakeAdam(AdamOptions options) {
  return std::make_unique<Adam>(options);
}

}  // namespace tessera
