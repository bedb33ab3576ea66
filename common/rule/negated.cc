#include "common/rule/negated.h"

#include <utility>

namespace tessera {
namespace {

class Negated final : public UpdateRule {
 public:
  explicit Negated(std::unique_ptr<UpdateRule> rule) : rule_(std::move(rule)) {}

  int state_count() const override { return rule_->state_count(); }
  float divisor(int state) const override { return rule_->divisor(state); }

  void Apply(const Update& update, const float* u, const float* w_in, float* w_out,
             float* const* state, int64_t count) const override {
    Update negative = update;
    // Workers push changes of w, and optimizers expect gradients, which point the other way.
    negative.scale = -update.scale;
    rule_->Apply(negative, u, w_in, w_out, state, count);
  }

 private:
  const std::unique_ptr<UpdateRule> rule_;
};

}  // namespace

std::unique_ptr<UpdateRule> MakeNegated(std::unique_ptr<UpdateRule> rule) {
  return std::make_unique<Negated>(std::move(rule));
}

}  // namespace tessera
