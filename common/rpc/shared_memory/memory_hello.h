// What both ends of a link say to each other once, over a Unix socket (SOCK_SEQPACKET), with the descriptor of their
// memory beside it (SCM_RIGHTS):
//
//   client   hello { magic, link, memory_bytes, area }   link: the number that the server gave over gRPC
//   server   hello of the same form, or it closes the connection
//
// Both look at who the other one is first (SO_PEERCRED). Then the connection carries calls (local_packet.h), and its
// end tells that the peer reads no more.
#ifndef TESSERA_COMMON_RPC_SHARED_MEMORY_MEMORY_HELLO_H_
#define TESSERA_COMMON_RPC_SHARED_MEMORY_MEMORY_HELLO_H_

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/rpc/shared_memory/memory_link.h"
#include "common/rpc/shared_memory/owned_descriptor.h"

namespace tessera {

struct MemoryHello {
  uint64_t link = 0;
  int64_t memory_bytes = 0;
  int64_t area = 0;
};

// Whether `user`, who is at the other end, may share memory with this process: who has this process's user.
bool IsOwnUser(uid_t user);
using UserCheck = bool (*)(uid_t user);

// kPermissionDenied: the process at the other end is another user's.
absl::Status CheckPeer(int connection, UserCheck may_share);

absl::Status SendHello(int connection, const MemoryHello& hello, int memory);
// Fills `memory` with the descriptor that came. kUnavailable: the peer has closed the connection. kInvalidArgument: it
// said something else.
absl::StatusOr<MemoryHello> ReceiveHello(int connection, OwnedDescriptor* memory);

// An abstract Unix socket that listens, and its name, which is drawn by chance.
struct MemorySocket {
  OwnedDescriptor listener;
  std::string name;
};
absl::StatusOr<MemorySocket> ListenForMemory();

// Makes the link of this number with the server whose socket has this name, in `limit` at most.
//   kFailedPrecondition  there is no such socket in this machine or container
//   kPermissionDenied    it is another user's
//   kUnavailable         the server does not answer in time, or has sent this process away
absl::StatusOr<std::shared_ptr<MemoryLink>> ConnectMemory(const std::string& socket, uint64_t link,
                                                          SharedArena* arena, absl::Duration limit,
                                                          UserCheck may_share = IsOwnUser);

}  // namespace tessera

#endif  // TESSERA_COMMON_RPC_SHARED_MEMORY_MEMORY_HELLO_H_
