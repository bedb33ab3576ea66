#include "common/rule/delayed_nesterov.h"

#include "common/base/check.h"
#include "common/base/vector_clones.h"
#include "common/rule/sgd.h"

namespace tessera {
namespace {

// c = 0: reads 12n bytes, writes 8n. Between momentum steps the change alone moves w, by its share; the buffer collects
// it for the next step.
TESSERA_VECTOR_CLONES
void CollectRun(const float* u, float scale, float share, float eta, const float* w_in,
                float* w_out, float* __restrict buffer, int64_t count) {
#pragma GCC ivdep
  for (int64_t i = 0; i < count; ++i) {
    const float d = scale * u[i];
    buffer[i] += d;
    w_out[i] = w_in[i] - eta * (share * d);
  }
}

// `ahead` is c mu. Reads 16n bytes, writes 8n.
TESSERA_VECTOR_CLONES
void CollectAheadRun(const float* u, float scale, float share, float eta, float ahead,
                     const float* w_in, float* w_out, const float* __restrict m,
                     float* __restrict buffer, int64_t count) {
#pragma GCC ivdep
  for (int64_t i = 0; i < count; ++i) {
    const float d = scale * u[i];
    buffer[i] += d;
    w_out[i] = w_in[i] - eta * (ahead * m[i] + share * d);
  }
}

// `rest` is (1 - c N + c) mu. Reads 16n bytes, writes 12n. Once per interval the momentum takes in the mean of the
// interval's changes, and the buffer begins anew.
TESSERA_VECTOR_CLONES
void MomentumRun(const float* u, float scale, float share, float eta, float mu, float rest,
                 const float* w_in, float* w_out, float* __restrict m, float* __restrict buffer,
                 int64_t count) {
#pragma GCC ivdep
  for (int64_t i = 0; i < count; ++i) {
    const float d = scale * u[i];
    m[i] = mu * m[i] + share * (buffer[i] + d);
    buffer[i] = 0;
    w_out[i] = w_in[i] - eta * (rest * m[i] + share * d);
  }
}

class DelayedNesterov final : public UpdateRule {
 public:
  explicit DelayedNesterov(DelayedNesterovOptions options) : options_(options) {}

  int state_count() const override { return 2; }

  float divisor(int state) const override {
    // A buffer that was saved with another interval is scaled to this one, as the momentum step divides by it.
    return state == kBuffer ? static_cast<float>(options_.interval) : 1;
  }

  void Apply(const Update& update, const float* u, const float* w_in, float* w_out,
             float* const* state, int64_t count) const override {
    const float interval = static_cast<float>(options_.interval);
    const float share = 1 / interval;
    const float eta = options_.learning_rate * update.rate;
    const float mu = options_.momentum;
    const float ahead = options_.ahead;
    float* const m = state[kMomentum];
    float* const buffer = state[kBuffer];
    // Updates are numbered from 1, so that every interval ends with a momentum step.
    if (update.number % static_cast<uint64_t>(options_.interval) == 0) {
      const float rest = (1 - ahead * interval + ahead) * mu;
      MomentumRun(u, update.scale, share, eta, mu, rest, w_in, w_out, m, buffer, count);
    } else if (ahead != 0) {
      CollectAheadRun(u, update.scale, share, eta, ahead * mu, w_in, w_out, m, buffer, count);
    } else {
      CollectRun(u, update.scale, share, eta, w_in, w_out, buffer, count);
    }
  }

 private:
  static constexpr int kMomentum = 0, kBuffer = 1;

  const DelayedNesterovOptions options_;
};

}  // namespace

std::unique_ptr<UpdateRule> MakeDelayedNesterov(DelayedNesterovOptions options) {
  TESSERA_CHECK(options.interval >= 1);
  // Without momentum what is left is SGD with the share as its rate, and needs no states.
  if (options.momentum == 0) {
    return MakeSgd({options.learning_rate / static_cast<float>(options.interval), 0, 0});
  }
  return std::make_unique<DelayedNesterov>(options);
}

}  // namespace tessera
