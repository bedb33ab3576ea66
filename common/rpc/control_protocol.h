// The version of the control plane that both ends must speak.
#ifndef TESSERA_COMMON_RPC_CONTROL_PROTOCOL_H_
#define TESSERA_COMMON_RPC_CONTROL_PROTOCOL_H_

#include <cstdint>

namespace tessera {

// JoinRequest.protocol. Raised when an old worker would misunderstand a new coordinator.
constexpr uint32_t kControlProtocol = 1;

}  // namespace tessera

#endif  // TESSERA_COMMON_RPC_CONTROL_PROTOCOL_H_
