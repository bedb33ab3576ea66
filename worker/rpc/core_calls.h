// The keys of a core, from all servers: asked for, and taken when they are needed, so that they come
// while minibatches are computed.
#ifndef TESSERA_WORKER_RPC_CORE_CALLS_H_
#define TESSERA_WORKER_RPC_CORE_CALLS_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <grpcpp/generic/generic_stub.h>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/ids.h"
#include "proto/parameter_server.pb.h"
#include "worker/exchange/parameter_client.h"
#include "worker/rpc/call_board.h"
#include "worker/rpc/retry.h"
#include "worker/rpc/server_call.h"

namespace tessera {

// One server's answer: a single attempt.
class CoreFromServer final : public ServerCall {
 public:
  // Asks a server that owns `entries` entries for its part of a core.
  CoreFromServer(CallBoard* board, const v1::PullRequest& request, uint64_t layout_hash,
                 int64_t entries);
  void Start(grpc::GenericStub* stub);
  // The core that a successful call has brought.
  const std::shared_ptr<const Core>& core() const { return core_; }

  void OnReadDone(bool ok) override;

 private:
  absl::Status Conclude(absl::Status status) override;
  absl::Status TakeChunk();

  const uint64_t layout_hash_;
  const int64_t entries_;
  grpc::ByteBuffer message_;
  bool has_header_ = false;
  v1::SparseKeys named_;
  std::string keys_;
  std::shared_ptr<const Core> core_;
  absl::Status broken_;
};

// One thread, the train loop's, but for Cancel, SetAway and Notify.
class CoreCalls {
 public:
  struct Options {
    v1::Caller caller;
    uint64_t layout_hash = 0;
    // The entries of each server.
    std::vector<int64_t> entries;
    // How long a server that cannot be reached is tried again, from the first failure on that is seen while
    // the answer is waited for.
    absl::Duration retry_time = absl::Seconds(10);
    // Requests say which shard they are for, as another server may lead it.
    bool names_shards = false;
    // Called while Take waits: it may call Repeat, after which `stub` is of another server. May be empty.
    std::function<void()> look_around;
    std::function<grpc::GenericStub*(size_t server)> stub;
  };
  explicit CoreCalls(Options options);
  ~CoreCalls();

  void Ask(uint64_t number);
  // Codes as ParameterClient::Pull. `traffic` counts what came since the last Take, with or without success, also
  // for an Ask that another one has replaced.
  absl::StatusOr<Cores> Take(Traffic* traffic);
  void Cancel();
  // As ParameterClientGrpc::SetAway: Take makes no other call until this is over, and gives none up. Any thread.
  void SetAway(bool away);
  // Cuts off the call to this server, if there is one: Take makes another soon, with the whole time.
  void Repeat(size_t server);
  // Take looks around. Any thread.
  void Notify() { board_.Notify(); }

 private:
  struct Asked {
    std::unique_ptr<CoreFromServer> call;  // nullptr: taken, or to be made again
    Retry retry;
  };

  void Start(size_t server);
  // An attempt has failed. Plans the next one where it may help.
  absl::Status Collect(size_t server, const absl::Status& status);
  void End();
  // Counts the traffic of a call that has ended.
  void Count(const CoreFromServer& call);

  const Options options_;
  v1::PullRequest request_;
  CallBoard board_;
  std::vector<Asked> asked_;  // by server
  Traffic came_;              // since the last Take
  std::atomic<bool> cancelled_{false};
  std::atomic<bool> away_{false};
};

}  // namespace tessera

#endif  // TESSERA_WORKER_RPC_CORE_CALLS_H_
