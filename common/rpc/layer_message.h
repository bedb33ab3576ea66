// Keys of layers as messages.
#ifndef TESSERA_COMMON_RPC_LAYER_MESSAGE_H_
#define TESSERA_COMMON_RPC_LAYER_MESSAGE_H_

#include "absl/status/statusor.h"
#include "common/keyset/key_set.h"
#include "common/layout/layer_cut.h"
#include "proto/parameter_server.pb.h"

namespace tessera {

v1::LayerKeys ToMessage(const ParameterRange& layers);

// Sets the keys of a push or a pull, which are of layers or of all entries.
void SetKeys(const KeySet& keys, v1::KeySet* message);

// The range that `message` names, which need not be any of a job's layers.
absl::StatusOr<ParameterRange> LayersOf(const v1::LayerKeys& message);

}  // namespace tessera

#endif  // TESSERA_COMMON_RPC_LAYER_MESSAGE_H_
