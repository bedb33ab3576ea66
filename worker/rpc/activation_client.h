// Activations to a linear worker and their gradient back, over gRPC (proto/activations.proto).
//
// A call that fails is made again (worker/rpc/retry.h): the other side counts a batch once. Where the linear worker is
// not reached it is tried until it is no member any more, and another one gets the batch then.
#ifndef TESSERA_WORKER_RPC_ACTIVATION_CLIENT_H_
#define TESSERA_WORKER_RPC_ACTIVATION_CLIENT_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <grpcpp/generic/generic_stub.h>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/base/ids.h"
#include "worker/activations/activation_exchange.h"
#include "worker/activations/layer_workers.h"
#include "worker/rpc/call_board.h"

namespace tessera {

// Exchange: the train loop's thread. The rest: any thread.
class ActivationClient final : public ActivationSender {
 public:
  struct Options {
    MemberId member;
    std::string job_digest;
    LayerSplit split;
    // A linear worker that cannot be reached, and is still said to be a member, is given up after this long.
    absl::Duration retry_time = absl::Seconds(10);
    // Something has failed: whatever changed is wanted soon (CoordinatorClient::RenewSoon).
    std::function<void()> on_trouble = [] {};
  };

  explicit ActivationClient(Options options) : options_(std::move(options)) {}

  void SetWorkers(const v1::WorkerList& list);
  // The coordinator is away: as nobody can say who is lost, no linear worker is given up until it is back, and
  // then each has the whole time again.
  void SetAway(bool away);
  // This worker is to leave: where no linear worker is left a batch is dropped.
  void Leave();
  // Ends the call under way, and those to come.
  void Cancel();

  absl::StatusOr<ActivationAnswer> Exchange(const ActivationBatch& batch) override;
  int64_t payload_bytes() const override { return payload_bytes_.load(std::memory_order_relaxed); }

 private:
  class Call;

  bool Has(Generation plan) const;
  bool LinearComesLater(uint64_t step) const;
  // Waits until it is known who takes part.
  absl::Status AwaitPlan(const ActivationBatch& batch);
  // The linear worker to ask now for that step; nullopt: there is none.
  std::optional<LayerWorker> Target(uint64_t step) const;
  absl::StatusOr<ActivationAnswer> Once(const ActivationBatch& batch, const LayerWorker& target);

  const Options options_;
  CallBoard board_;
  std::atomic<bool> cancelled_{false};
  std::atomic<bool> away_{false};
  std::atomic<bool> leaves_{false};
  mutable absl::Mutex mutex_;
  LayerWorkers workers_ ABSL_GUARDED_BY(mutex_);

  // What follows belongs to the train loop's thread.
  MemberId connected_;
  std::unique_ptr<grpc::GenericStub> stub_;
  std::vector<float> gradient_;
  std::atomic<int64_t> payload_bytes_{0};
};

}  // namespace tessera

#endif  // TESSERA_WORKER_RPC_ACTIVATION_CLIENT_H_
