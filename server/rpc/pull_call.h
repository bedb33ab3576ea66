// One answer to Pull: the shard's blocks, sent from where they lie.
//
//   1. The request is read and its caller checked.
//   2. The shard is asked; the answer may wait for other workers. A client that goes is forgotten.
//   3. Chunks that reference the snapshot's blocks are sent one after the other. An answer of
//      several begins with a short one, so that the shard's thread, which sends it, is soon free;
//      gRPC's threads send the rest.
// A reader that is too slow loses its snapshot and ends with ABORTED, or with CANCELLED if its
// network stands still.
#ifndef TESSERA_SERVER_RPC_PULL_CALL_H_
#define TESSERA_SERVER_RPC_PULL_CALL_H_

#include <cstdint>
#include <memory>
#include <string>

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "proto/parameter_server.pb.h"
#include "server/rpc/data_plane.h"

namespace tessera {

// Keeps itself alive until gRPC and the shard are done with it.
class PullCall final : public grpc::ServerWriteReactor<grpc::ByteBuffer>,
                       public ActiveReader,
                       public std::enable_shared_from_this<PullCall> {
 public:
  static grpc::ServerWriteReactor<grpc::ByteBuffer>* Start(DataPlane* plane,
                                                           grpc::CallbackServerContext* context,
                                                           const grpc::ByteBuffer& request);

  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;
  void CutOffIfRevoked() override;

 private:
  PullCall(DataPlane* plane, grpc::CallbackServerContext* context)
      : plane_(plane), context_(context) {}

  absl::Status Ask(const grpc::ByteBuffer& request);
  void Answer(absl::StatusOr<ReadResult> result);
  void SendNext();

  DataPlane* const plane_;
  grpc::CallbackServerContext* const context_;
  std::shared_ptr<PullCall> self_;
  std::string where_;
  bool outside_exchange_ = false;

  absl::Mutex mutex_;
  uint64_t read_ ABSL_GUARDED_BY(mutex_) = 0;
  bool gone_ ABSL_GUARDED_BY(mutex_) = false;

  // Set once by Answer. Then one thread at a time, as gRPC calls OnWriteDone.
  std::shared_ptr<const Snapshot> snapshot_;
  Version version_;
  uint64_t examples_ = 0;
  bool is_reader_ = false;
  size_t block_ = 0;
  int64_t offset_ = 0;  // bytes of blocks()[block_] that were sent
  int64_t left_ = 0;    // bytes of the answer that were not
  grpc::ByteBuffer message_;
};

}  // namespace tessera

#endif  // TESSERA_SERVER_RPC_PULL_CALL_H_
