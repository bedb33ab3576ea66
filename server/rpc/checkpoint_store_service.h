// What a server's disk has of the job's checkpoints, for the other servers and the workers (checkpoint.store:
// own_disks).
#ifndef TESSERA_SERVER_RPC_CHECKPOINT_STORE_SERVICE_H_
#define TESSERA_SERVER_RPC_CHECKPOINT_STORE_SERVICE_H_

#include <deque>
#include <functional>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "common/config/checkpoint_keys.h"
#include "proto/checkpoint_store.grpc.pb.h"
#include "server/checkpoint/held_checkpoints.h"

namespace tessera {

// Runs a thread, which does one call after the other: a disk that is slow or hangs holds up none of gRPC's threads.
// kStoreCallsMax calls may wait for it, each with a piece of a file; one more is UNAVAILABLE, and is made again. This
// bounds the memory that checkpoints of others take here.
class CheckpointStoreService final : public v1::CheckpointStore::CallbackService {
 public:
  // `held` outlives it.
  CheckpointStoreService(HeldCheckpoints* held, std::string job_digest);
  // Refuses what waits. No call comes any more.
  ~CheckpointStoreService() override;

  grpc::ServerUnaryReactor* Begin(grpc::CallbackServerContext* context,
                                  const v1::BeginCheckpointRequest* request,
                                  v1::BeginCheckpointReply* reply) override;
  grpc::ServerUnaryReactor* Write(grpc::CallbackServerContext* context,
                                  const v1::WritePieceRequest* request,
                                  v1::WritePieceReply* reply) override;
  grpc::ServerUnaryReactor* Commit(grpc::CallbackServerContext* context,
                                   const v1::CommitCheckpointRequest* request,
                                   v1::CommitCheckpointReply* reply) override;
  grpc::ServerUnaryReactor* Abandon(grpc::CallbackServerContext* context,
                                    const v1::AbandonCheckpointRequest* request,
                                    v1::AbandonCheckpointReply* reply) override;
  grpc::ServerUnaryReactor* Prune(grpc::CallbackServerContext* context,
                                  const v1::PruneCheckpointsRequest* request,
                                  v1::PruneCheckpointsReply* reply) override;
  grpc::ServerUnaryReactor* List(grpc::CallbackServerContext* context,
                                 const v1::ListCheckpointsRequest* request,
                                 v1::ListCheckpointsReply* reply) override;
  grpc::ServerUnaryReactor* Read(grpc::CallbackServerContext* context,
                                 const v1::ReadPieceRequest* request,
                                 v1::ReadPieceReply* reply) override;

 private:
  struct Task {
    grpc::ServerUnaryReactor* call = nullptr;
    std::function<absl::Status()> work;
  };

  // Has `work` done for a call of the job `digest`.
  grpc::ServerUnaryReactor* Do(grpc::CallbackServerContext* context, const std::string& digest,
                               std::function<absl::Status()> work);
  void Run();

  HeldCheckpoints* const held_;
  const std::string job_digest_;
  absl::Mutex mutex_;
  std::deque<Task> tasks_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace tessera

#endif  // TESSERA_SERVER_RPC_CHECKPOINT_STORE_SERVICE_H_
