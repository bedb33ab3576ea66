// All that a worker has to meet those that train the other half of the layers: its door, and whichever side of the
// exchange its rank gives it.
#ifndef TESSERA_WORKER_RPC_LAYER_EXCHANGE_H_
#define TESSERA_WORKER_RPC_LAYER_EXCHANGE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/base/ids.h"
#include "common/method/recipe.h"
#include "common/rpc/grpc_server.h"
#include "proto/peers.pb.h"
#include "worker/activations/activation_inbox.h"
#include "worker/rpc/activation_client.h"
#include "worker/rpc/activation_service.h"

namespace tessera {

// Any thread.
class LayerExchange {
 public:
  struct Options {
    // host:port; port 0 takes a free one. Empty: nobody calls this worker, which has data.
    std::string listen;
    std::string job_digest;
    LayerSplit split;
    // As ActivationQueue::Options.
    int64_t rows_max = 0;
    int64_t features = 0;
    int64_t outputs = 0;
    bool has_classes = true;
  };

  // What belongs to one membership: a worker that joins again begins another one.
  struct Life {
    MemberId member;
    Rank rank;
    v1::WorkerList workers;
    // As ActivationClient::Options.
    absl::Duration retry_time = absl::Seconds(10);
    std::function<void()> on_trouble = [] {};
  };

  // Codes as GrpcServer::Start.
  static absl::StatusOr<std::unique_ptr<LayerExchange>> Open(Options options);
  ~LayerExchange();

  // Where others reach it; empty: nowhere.
  std::string address() const { return server_ == nullptr ? "" : server_->address(); }
  // What their calls come through.
  ActivationService& door() { return service_; }
  // One of the two is there between Begin and End, by rank.
  void Begin(Life life);
  ActivationSender* sender() const;
  ActivationInbox* receiver() const;
  // May be called at any time: a list that comes before Begin is not said again.
  void SetWorkers(const v1::WorkerList& list);
  // The coordinator is away, or is back (ActivationClient::SetAway).
  void SetAway(bool away);
  // This worker is to leave, in this membership or the next: it waits for none of a half that has nobody left.
  void Leave();
  // Ends what waits in this membership.
  void Cancel();
  void End();

 private:
  explicit LayerExchange(Options options);

  const Options options_;
  ActivationService service_;
  std::unique_ptr<GrpcServer> server_;
  mutable absl::Mutex mutex_;
  v1::WorkerList workers_ ABSL_GUARDED_BY(mutex_);  // the newest
  bool away_ ABSL_GUARDED_BY(mutex_) = false;
  bool leaves_ ABSL_GUARDED_BY(mutex_) = false;
  std::unique_ptr<ActivationClient> client_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<ActivationInbox> inbox_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tessera

#endif  // TESSERA_WORKER_RPC_LAYER_EXCHANGE_H_
