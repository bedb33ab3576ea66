// A site's place in a round, as messages carry it.
#ifndef TESSERA_COMMON_RPC_SUBNET_MESSAGE_H_
#define TESSERA_COMMON_RPC_SUBNET_MESSAGE_H_

#include "absl/status/statusor.h"
#include "common/keyset/key_set.h"
#include "common/keyset/subnet.h"
#include "proto/parameter_server.pb.h"

namespace tessera {

v1::SubnetKeys ToMessage(const SubnetPlace& place);

// What a fetch of `keys`, which are a subnet's, asks for. The caller and the plan are left as they are.
void SetKeys(const KeySet& keys, v1::SubnetRequest* request);

// kInvalidArgument: no place that common/keyset/subnet.h allows.
absl::StatusOr<SubnetPlace> PlaceOf(const v1::SubnetKeys& message);

}  // namespace tessera

#endif  // TESSERA_COMMON_RPC_SUBNET_MESSAGE_H_
