#include "common/rule/adagrad.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "common/base/vector_clones.h"

namespace tessera {
namespace {

// Reads 12n bytes, writes 8n.
TESSERA_VECTOR_CLONES
void AdagradRun(const float* u, float scale, float eta, float epsilon, float decay,
                const float* w_in, float* w_out, float* __restrict v, int64_t count) {
#pragma GCC ivdep
  for (int64_t i = 0; i < count; ++i) {
    const float g = scale * u[i] + decay * w_in[i];
    // Squares are never forgotten, so the step of an entry only shrinks (Duchi et al., 2011).
    v[i] += g * g;
    w_out[i] = w_in[i] - eta * (g / (std::sqrt(v[i]) + epsilon));
  }
}

class Adagrad final : public UpdateRule {
 public:
  explicit Adagrad(AdagradOptions options) : options_(options) {}

  int state_count() const override { return 1; }

  void Apply(const Update& update, const float* u, const float* w_in, float* w_out,
             float* const* state, int64_t count) const override {
    // Without an epsilon an entry whose gradients were all 0 would be 0 / 0.
    const float epsilon = std::max(options_.epsilon, std::numeric_limits<float>::min());
    AdagradRun(u, update.scale, options_.learning_rate * update.rate, epsilon,
               options_.weight_decay, w_in, w_out, state[0], count);
  }

 private:
  const AdagradOptions options_;
};

}  // namespace

std::unique_ptr<UpdateRule> MakeAdagrad(AdagradOptions options) {
  return std::make_unique<Adagrad>(options);
}

}  // namespace tessera
