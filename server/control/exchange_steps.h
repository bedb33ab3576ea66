// Which minibatch an exchange of a job in lockstep follows, also of one that goes on from a checkpoint: that may have
// been made after the last, shorter interval of a job, or of one with other local steps.
#ifndef TESSERA_SERVER_CONTROL_EXCHANGE_STEPS_H_
#define TESSERA_SERVER_CONTROL_EXCHANGE_STEPS_H_

#include <cstdint>

#include "common/base/ids.h"
#include "common/checkpoint/manifest.h"

namespace tessera {

class ExchangeSteps {
 public:
  // `from` is where the job goes on from; nullptr: from its beginning. `local_steps` is 1 or more.
  ExchangeSteps(int64_t local_steps, const Manifest* from)
      : local_steps_(static_cast<uint64_t>(local_steps)),
        exchange_(from != nullptr ? from->exchange : 0),
        step_(from != nullptr ? from->step : 0) {}

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
