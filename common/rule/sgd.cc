#include "common/rule/sgd.h"

#include "common/base/vector_clones.h"

namespace tessera {
namespace {

// Reads 8n bytes, writes 4n.
TESSERA_VECTOR_CLONES
void PlainRun(const float* u, float scale, float eta, float decay, const float* w_in, float* w_out,
              int64_t count) {
#pragma GCC ivdep
  for (int64_t i = 0; i < count; ++i) {
    const float g = scale * u[i] + decay * w_in[i];
    w_out[i] = w_in[i] - eta * g;
  }
}

// Reads 12n bytes, writes 8n.
TESSERA_VECTOR_CLONES
void MomentumRun(const float* u, float scale, float eta, float mu, float decay, const float* w_in,
                 float* w_out, float* __restrict m, int64_t count) {
#pragma GCC ivdep
  for (int64_t i = 0; i < count; ++i) {
    const float g = scale * u[i] + decay * w_in[i];
    m[i] = mu * m[i] + g;
    w_out[i] = w_in[i] - eta * m[i];
  }
}

class Sgd final : public UpdateRule {
 public:
  explicit Sgd(SgdOptions options) : options_(options) {}

  int state_count() const override { return options_.momentum != 0 ? 1 : 0; }

  void Apply(const float* u, float scale, const float* w_in, float* w_out, float* const* state,
             int64_t count) const override {
    if (options_.momentum != 0) {
      MomentumRun(u, scale, options_.learning_rate, options_.momentum, options_.weight_decay, w_in,
                  w_out, state[0], count);
    } else {
      PlainRun(u, scale, options_.learning_rate, options_.weight_decay, w_in, w_out, count);
    }
  }

 private:
  const SgdOptions options_;
};

}  // namespace

std::unique_ptr<UpdateRule> MakeSgd(SgdOptions options) { return std::make_unique<Sgd>(options); }

}  // namespace tessera
