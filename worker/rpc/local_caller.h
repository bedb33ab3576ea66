// Calls to one server by the memory that it shares with this process (common/rpc/shared_memory/local_packet.h).
#ifndef TESSERA_WORKER_RPC_LOCAL_CALLER_H_
#define TESSERA_WORKER_RPC_LOCAL_CALLER_H_

#include <cstdint>
#include <map>
#include <memory>
#include <utility>

#include <grpcpp/support/byte_buffer.h>

#include "absl/status/status.h"
#include "common/rpc/shared_memory/local_packet.h"
#include "common/rpc/shared_memory/memory_link.h"

namespace tessera {

// What one call is told, until OnEnd, from within LocalCaller's functions.
class LocalAnswer {
 public:
  virtual ~LocalAnswer() = default;
  // False: nothing more of the call is wanted, which ends with kCancelled.
  virtual bool OnMessage(grpc::ByteBuffer message) = 0;
  // Nothing more is told.
  virtual void OnEnd(const absl::Status& status) = 0;
};

// One thread, which begins the calls and reads what they are answered: Take, whenever there is something to read at the
// link's connection.
class LocalCaller {
 public:
  explicit LocalCaller(std::shared_ptr<MemoryLink> link) : link_(std::move(link)) {}

  const std::shared_ptr<MemoryLink>& link() const { return link_; }

  // Begins a call, whose number is returned: `answer` is told of it from now on. Where the request cannot be sent that
  // is kUnavailable, before this returns.
  uint32_t Begin(PacketKind kind, const grpc::ByteBuffer& request, LocalAnswer* answer);
  // Ends the call, if it has not ended, with kCancelled.
  void Cancel(uint32_t call);
  // Tells calls what has come.
  void Take();

 private:
  void End(uint32_t call, const absl::Status& status);
  void Tell(LocalPacket packet);

  const std::shared_ptr<MemoryLink> link_;
  PacketReader reader_;
  uint32_t last_ = 0;
  std::map<uint32_t, LocalAnswer*> calls_;
};

}  // namespace tessera

#endif  // TESSERA_WORKER_RPC_LOCAL_CALLER_H_
