#include "common/rule/add.h"

#include "common/base/vector_clones.h"

namespace tessera {
namespace {

TESSERA_VECTOR_CLONES
void AddRun(const float* u, float scale, const float* w_in, float* w_out, int64_t count) {
#pragma GCC ivdep
  for (int64_t i = 0; i < count; ++i) w_out[i] = w_in[i] + scale * u[i];
}

class Add final : public UpdateRule {
 public:
  int state_count() const override { return 0; }
  // w + 0 is w, so that entries which nobody pushed need not be touched.
  bool keeps_where_zero() const override { return true; }
  void Apply(const Update& update, const float* u, const float* w_in, float* w_out,
             float* const* state, int64_t count) const override {
    AddRun(u, update.scale, w_in, w_out, count);
  }
};

}  // namespace

std::unique_ptr<UpdateRule> MakeAdd() { return std::make_unique<Add>(); }

}  // namespace tessera
