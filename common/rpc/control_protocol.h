// The version of the control plane that both ends must speak, and how they quote each other.
#ifndef TESSERA_COMMON_RPC_CONTROL_PROTOCOL_H_
#define TESSERA_COMMON_RPC_CONTROL_PROTOCOL_H_

#include <cstddef>
#include <cstdint>

namespace tessera {

// The number of JoinRequest.protocol, raised when an old worker would misunderstand a new coordinator.
constexpr uint32_t kControlProtocol = 1;
// The most characters that an error quotes of what a stranger sends in place of a digest, which has 64.
constexpr size_t kDigestQuoted = 64;

}  // namespace tessera

#endif  // TESSERA_COMMON_RPC_CONTROL_PROTOCOL_H_
