// Brings a server that has joined a running job up to the others (server/shard/replica_copying.h has the steps).
#ifndef TESSERA_SERVER_RPC_REPLICA_COPIER_H_
#define TESSERA_SERVER_RPC_REPLICA_COPIER_H_

#include <string>
#include <thread>

#include <grpcpp/client_context.h>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "common/base/wakeup.h"
#include "server/shard/shard_thread.h"

namespace tessera {

// Begins with the first donor, on a thread of its own, and tries until it has a copy that will do.
class ReplicaCopier {
 public:
  // `shard` outlives this. `server_key` is asked for CoordinatorWord.server_key, which donors want; any thread.
  ReplicaCopier(ShardThread* shard, std::string job_digest, std::function<uint64_t()> server_key)
      : shard_(*shard), job_digest_(std::move(job_digest)), server_key_(std::move(server_key)) {}
  // Gives up.
  ~ReplicaCopier();

  // Copies that server's replica, or goes on with it where another one was named before. Any thread.
  void CopyFrom(const std::string& donor);

 private:
  void Run();
  absl::Status CopyOnce(const std::string& donor);
  bool WantsCopy();

  ShardThread& shard_;
  const std::string job_digest_;
  const std::function<uint64_t()> server_key_;
  absl::Mutex mutex_;
  std::string donor_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  Wakeup stop_;  // notified with stopping_
  grpc::ClientContext* call_ ABSL_GUARDED_BY(mutex_) = nullptr;
  std::thread thread_;
};

}  // namespace tessera

#endif  // TESSERA_SERVER_RPC_REPLICA_COPIER_H_
