// All that a worker has to meet those that train the other half of the layers: its door, and whichever side of the
// exchange its rank gives it.
#ifndef TESSERA_WORKER_RPC_LAYER_EXCHANGE_H_
#define TESSERA_WORKER_RPC_LAYER_EXCHANGE_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "common/base/ids.h"
#include "common/method/recipe.h"
#include "common/rpc/grpc_server.h"
#include "proto/peers.pb.h"
#include "worker/activations/activation_inbox.h"
#include "worker/layer_partners.h"
#include "worker/rpc/activation_client.h"
#include "worker/rpc/activation_service.h"

namespace tessera {

// Any thread.
class LayerExchange final : public LayerPartners {
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

  // Codes as GrpcServer::Start.
  static absl::StatusOr<std::unique_ptr<LayerExchange>> Open(Options options);
  ~LayerExchange() override;

  std::string address() const override { return server_ == nullptr ? "" : server_->address(); }
  // What others' calls come through.
  ActivationService& door() { return service_; }
  void Begin(Life life) override;
  ActivationSender* sender() const override;
  ActivationInbox* receiver() const override;
  void SetWorkers(const v1::WorkerList& list) override;
  void SetAway(bool away) override;
  void Leave() override;
  void Cancel() override;
  void End() override;

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
