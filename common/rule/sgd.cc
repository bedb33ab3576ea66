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

// Reads 12n bytes, writes 8n. Nesterov's step looks ahead by one more momentum step: Sutskever et al. (2013), in the
// form that PyTorch has.
TESSERA_VECTOR_CLONES
void NesterovRun(const float* u, float scale, float eta, float mu, float decay, const float* w_in,
                 float* w_out, float* __restrict m, int64_t count) {
#pragma GCC ivdep
  for (int64_t i = 0; i < count; ++i) {
    const float g = scale * u[i] + decay * w_in[i];
    m[i] = mu * m[i] + g;
    w_out[i] = w_in[i] - eta * (g + mu * m[i]);
  }
}

class Sgd final : public UpdateRule {
 public:
  explicit Sgd(SgdOptions options) : options_(options) {}

  // Plain SGD keeps no state, so that neither servers nor checkpoints hold one.
  int state_count() const override { return options_.momentum != 0 ? 1 : 0; }

  void Apply(const Update& update, const float* u, const float* w_in, float* w_out,
             float* const* state, int64_t count) const override {
    const float eta = options_.learning_rate * update.rate;
    const float mu = options_.momentum;
    const float decay = options_.weight_decay;
    // Each kind has a loop of its own, as reading a state that is not used would cost its traffic.
    if (mu == 0) {
      PlainRun(u, update.scale, eta, decay, w_in, w_out, count);
    } else if (options_.nesterov) {
      NesterovRun(u, update.scale, eta, mu, decay, w_in, w_out, state[0], count);
    } else {
      MomentumRun(u, update.scale, eta, mu, decay, w_in, w_out, state[0], count);
    }
  }

 private:
  const SgdOptions options_;
};

}  // namespace

std::unique_ptr<UpdateRule> MakeSgd(SgdOptions options) { return std::make_unique<Sgd>(options); }

}  // namespace tessera
