// The version of the control plane that both ends must speak, and how they quote each other.
#ifndef TESSERA_COMMON_RPC_CONTROL_PROTOCOL_H_
#define TESSERA_COMMON_RPC_CONTROL_PROTOCOL_H_

#include <cstddef>
#include <cstdint>

namespace tessera {

// JoinRequest.protocol. Raised when an old worker would misunderstand a new coordinator.
constexpr uint32_t kControlProtocol = 1;
// A digest has 64 characters; of what a stranger sends in its place an error quotes no more.
constexpr size_t kDigestQuoted = 64;

}  // namespace tessera

#endif  // TESSERA_COMMON_RPC_CONTROL_PROTOCOL_H_
