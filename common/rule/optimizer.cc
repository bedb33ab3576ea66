#include "common/rule/optimizer.h"

#include <cstdlib>

#include "common/base/check.h"

namespace tessera {
namespace {

// Adam and AdamW have the same keys.
template <typename Keys>
AdamOptions AdamOptionsFrom(const Keys& keys, bool decoupled) {
  AdamOptions options;
  options.learning_rate = keys.learning_rate();
  options.beta1 = keys.beta1();
  options.beta2 = keys.beta2();
  options.epsilon = keys.epsilon();
  options.weight_decay = keys.weight_decay();
  options.decoupled = decoupled;
  return options;
}

}  // namespace

SgdOptions SgdOptionsOf(const v1::Sgd& keys) {
  SgdOptions options;
  options.learning_rate = static_cast<float>(keys.learning_rate());
  options.momentum = static_cast<float>(keys.momentum());
  options.weight_decay = static_cast<float>(keys.weight_decay());
  options.nesterov = keys.nesterov();
  return options;
}

AdagradOptions AdagradOptionsOf(const v1::Adagrad& keys) {
  AdagradOptions options;
  options.learning_rate = static_cast<float>(keys.learning_rate());
  options.epsilon = static_cast<float>(keys.epsilon());
  options.weight_decay = static_cast<float>(keys.weight_decay());
  return options;
}

RmsPropOptions RmsPropOptionsOf(const v1::RmsProp& keys) {
  RmsPropOptions options;
  options.learning_rate = static_cast<float>(keys.learning_rate());
  options.alpha = keys.alpha();
  options.epsilon = static_cast<float>(keys.epsilon());
  options.weight_decay = static_cast<float>(keys.weight_decay());
  options.momentum = static_cast<float>(keys.momentum());
  return options;
}

AdamOptions AdamOptionsOf(const v1::Optimizer& optimizer) {
  return optimizer.has_adamw() ? AdamOptionsFrom(optimizer.adamw(), true)
                               : AdamOptionsFrom(optimizer.adam(), false);
}

v1::Optimizer AdamWOf(const v1::Muon& keys) {
  v1::Optimizer optimizer;
  *optimizer.mutable_adamw() = keys.adamw();
  return optimizer;
}

std::unique_ptr<UpdateRule> MakeOptimizer(const v1::Optimizer& optimizer) {
  switch (optimizer.kind_case()) {
    case v1::Optimizer::kSgd:
      return MakeSgd(SgdOptionsOf(optimizer.sgd()));
    case v1::Optimizer::kAdagrad:
      return MakeAdagrad(AdagradOptionsOf(optimizer.adagrad()));
    case v1::Optimizer::kAdam:
    case v1::Optimizer::kAdamw:
      return MakeAdam(AdamOptionsOf(optimizer));
    case v1::Optimizer::kRmsprop:
      return MakeRmsProp(RmsPropOptionsOf(optimizer.rmsprop()));
    // Muon steps whole matrices, which a rule of entries cannot; its vectors get AdamWOf.
    case v1::Optimizer::kMuon:
    case v1::Optimizer::KIND_NOT_SET:
      break;
  }
  TESSERA_CHECK(false && "an optimizer without a kind, or one that is no rule");
  std::abort();
}

std::vector<std::string> StateNames(const v1::Optimizer& optimizer) {
  // The order is that of the rules' states, which checkpoints number.
  switch (optimizer.kind_case()) {
    case v1::Optimizer::kSgd:
      return SgdOptionsOf(optimizer.sgd()).momentum != 0 ? std::vector<std::string>{"momentum"}
                                                         : std::vector<std::string>();
    case v1::Optimizer::kAdagrad:
      return {"squares"};
    case v1::Optimizer::kAdam:
    case v1::Optimizer::kAdamw:
      return {"mean", "squares"};
    case v1::Optimizer::kRmsprop:
      return RmsPropOptionsOf(optimizer.rmsprop()).momentum != 0
                 ? std::vector<std::string>{"mean_squares", "momentum"}
                 : std::vector<std::string>{"mean_squares"};
    case v1::Optimizer::kMuon:
      return {"momentum", "squares"};
    case v1::Optimizer::KIND_NOT_SET:
      break;
  }
  return {};
}

}  // namespace tessera
