// Which arrays of an exchange lie where only a device reaches them.
#ifndef TESSERA_WORKER_EXCHANGE_DEVICE_SIDES_H_
#define TESSERA_WORKER_EXCHANGE_DEVICE_SIDES_H_

#include "common/codec/codec.h"
#include "common/method/recipe.h"
#include "kernels/memory.h"

namespace tessera {

// What is exchanged as it is crosses to the host, and its arrays are the host's. What is coded, or of
// which only some entries move, is coded, taken out and put back on the device, so that no more bytes
// cross than are sent: its arrays are the device's, if the codec has a device half. Learner and client go by the same
// sides. Of layers and of
// fragments all arrays are the host's.
struct DeviceSides {
  bool update = false;
  bool values = false;
};

inline DeviceSides DeviceSidesOf(const Recipe& recipe, const Memory& memory) {
  if (memory.host_addressable() || recipe.split || recipe.fragments) return {};
  const bool is_core = recipe.core.has_value();
  const auto on_device = [is_core](const Codec& codec) {
    return codec->traits().on_devices && (is_core || codec != Codec());
  };
  return {on_device(recipe.codecs.push), on_device(recipe.codecs.pull)};
}

}  // namespace tessera

#endif  // TESSERA_WORKER_EXCHANGE_DEVICE_SIDES_H_
