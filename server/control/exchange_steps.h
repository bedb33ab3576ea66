// Which minibatch an exchange follows where it tells, also in a job that goes on from a checkpoint: that may have
// been made after the last, shorter interval of a job, or of one with other local steps.
#ifndef TESSERA_SERVER_CONTROL_EXCHANGE_STEPS_H_
#define TESSERA_SERVER_CONTROL_EXCHANGE_STEPS_H_

#include <cstdint>

#include "common/base/ids.h"
#include "common/checkpoint/manifest.h"

namespace tessera {

class ExchangeSteps {
 public:
  // `from` is where a job in lockstep goes on from; nullptr: from its beginning. `local_steps` is 1 or more.
  ExchangeSteps(int64_t local_steps, const Manifest* from)
      : ExchangeSteps(local_steps, from != nullptr ? from->exchange : 0,
                      from != nullptr ? from->step : 0) {}
  // Members that advance on their own go on from their own exchanges: of one that had made `step` steps with this one
  // and those before it.
  ExchangeSteps(int64_t local_steps, uint64_t exchange, uint64_t step)
      : local_steps_(static_cast<uint64_t>(local_steps)), exchange_(exchange), step_(step) {}

  // The steps that are behind whoever has made this exchange, and those before it.
  uint64_t After(Exchange exchange) const {
    return exchange.value() <= exchange_ ? step_
                                         : step_ + (exchange.value() - exchange_) * local_steps_;
  }
  // The first exchange after which at least so many steps are behind.
  Exchange Reaching(uint64_t step) const {
    if (step <= step_) return Exchange(exchange_);
    return Exchange(exchange_ + (step - step_ + local_steps_ - 1) / local_steps_);
  }

 private:
  uint64_t local_steps_;
  uint64_t exchange_;
  uint64_t step_;
};

}  // namespace tessera

#endif  // TESSERA_SERVER_CONTROL_EXCHANGE_STEPS_H_
