// Whether one server shares memory with this worker, and the link to it: asked for beside the exchanges, which go in
// messages until it is there.
#ifndef TESSERA_WORKER_RPC_LINKED_SERVER_H_
#define TESSERA_WORKER_RPC_LINKED_SERVER_H_

#include <memory>
#include <string>

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "proto/parameter_server.grpc.pb.h"
#include "worker/rpc/local_caller.h"

namespace tessera {

// Any thread. A question that is under way holds this.
class LinkedServer final : public std::enable_shared_from_this<LinkedServer> {
 public:
  // `server` is for the log: which one, and where. Asks nothing yet.
  static std::shared_ptr<LinkedServer> Create(std::string server,
                                              std::shared_ptr<grpc::Channel> channel,
                                              const v1::Caller& caller);

  // The link, and calls by it; nullptr: there is none yet, or there will be none. Asks where that may help.
  std::shared_ptr<LocalCaller> caller();
  // The link is used for no more calls.
  void Leave();

 private:
  struct Question {
    grpc::ClientContext context;
    v1::ShareMemoryRequest request;
    v1::ShareMemoryReply reply;
  };

  LinkedServer(std::string server, std::shared_ptr<grpc::Channel> channel,
               const v1::Caller& caller);

  void Ask();
  void OnReply(const absl::Status& status, const v1::ShareMemoryReply& reply);

  const std::string server_;
  const std::unique_ptr<v1::ParameterServer::Stub> stub_;
  const v1::Caller caller_;
  absl::Mutex mutex_;
  std::shared_ptr<LocalCaller> local_ ABSL_GUARDED_BY(mutex_);
  bool is_asking_ ABSL_GUARDED_BY(mutex_) = false;
  bool is_refused_ ABSL_GUARDED_BY(mutex_) = false;  // for good
  absl::Time next_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
};

}  // namespace tessera

#endif  // TESSERA_WORKER_RPC_LINKED_SERVER_H_
