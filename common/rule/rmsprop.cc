#include "common/rule/rmsprop.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "common/base/vector_clones.h"

namespace tessera {
namespace {

// What all entries of one update have in common.
struct Coefficients {
  float scale, eta, decay, alpha, alpha_rest, epsilon, mu;
};

// Reads 12n bytes, writes 8n.
TESSERA_VECTOR_CLONES
void PlainRun(const Coefficients c, const float* u, const float* w_in, float* w_out,
              float* __restrict v, int64_t count) {
#pragma GCC ivdep
  for (int64_t i = 0; i < count; ++i) {
    const float g = c.scale * u[i] + c.decay * w_in[i];
    v[i] = c.alpha * v[i] + c.alpha_rest * (g * g);
    // Rounding of averaged states may leave a square slightly below 0, as in Adam.
    w_out[i] = w_in[i] - c.eta * (g / (std::sqrt(std::max(v[i], 0.0f)) + c.epsilon));
  }
}

// Reads 16n bytes, writes 12n.
TESSERA_VECTOR_CLONES
void MomentumRun(const Coefficients c, const float* u, const float* w_in, float* w_out,
                 float* __restrict v, float* __restrict m, int64_t count) {
#pragma GCC ivdep
  for (int64_t i = 0; i < count; ++i) {
    const float g = c.scale * u[i] + c.decay * w_in[i];
    v[i] = c.alpha * v[i] + c.alpha_rest * (g * g);
    m[i] = c.mu * m[i] + g / (std::sqrt(std::max(v[i], 0.0f)) + c.epsilon);
    w_out[i] = w_in[i] - c.eta * m[i];
  }
}

class RmsProp final : public UpdateRule {
 public:
  explicit RmsProp(RmsPropOptions options) : options_(options) {}

  // Without momentum the job keeps one state less per parameter.
  int state_count() const override { return options_.momentum != 0 ? 2 : 1; }

  void Apply(const Update& update, const float* u, const float* w_in, float* w_out,
             float* const* state, int64_t count) const override {
    // Without an epsilon an entry whose gradients were all 0 would be 0 / 0.
    const Coefficients c{
        update.scale,          options_.learning_rate * update.rate,
        options_.weight_decay, static_cast<float>(options_.alpha),
        options_.alpha_rest(), std::max(options_.epsilon, std::numeric_limits<float>::min()),
        options_.momentum};
    if (options_.momentum == 0) {
      PlainRun(c, u, w_in, w_out, state[0], count);
    } else {
      MomentumRun(c, u, w_in, w_out, state[0], state[1], count);
    }
  }

 private:
  const RmsPropOptions options_;
};

}  // namespace

std::unique_ptr<UpdateRule> MakeRmsProp(RmsPropOptions options) {
  return std::make_unique<RmsProp>(options);
}

}  // namespace tessera
