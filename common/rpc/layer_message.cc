#include "common/rpc/layer_message.h"

#include <cstdint>

#include "absl/strings/str_cat.h"

namespace tessera {
namespace {

constexpr uint32_t kParametersMax = uint32_t{1} << 30;

}  // namespace

v1::LayerKeys ToMessage(const ParameterRange& layers) {
  v1::LayerKeys message;
  message.set_parameter_begin(static_cast<uint32_t>(layers.begin));
  message.set_parameter_end(static_cast<uint32_t>(layers.end));
  return message;
}

void SetKeys(const KeySet& keys, v1::KeySet* message) {
  if (keys.layers.has_value()) {
    *message->mutable_layers() = ToMessage(*keys.layers);
  } else {
    message->mutable_dense();
  }
}

absl::StatusOr<ParameterRange> LayersOf(const v1::LayerKeys& message) {
  if (message.parameter_begin() > message.parameter_end() ||
      message.parameter_end() > kParametersMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("layers are parameters ", message.parameter_begin(), " to ",
                     message.parameter_end(), ", want a range below ", kParametersMax));
  }
  return ParameterRange{static_cast<int>(message.parameter_begin()),
                        static_cast<int>(message.parameter_end())};
}

}  // namespace tessera
