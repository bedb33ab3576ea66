// A linear worker's batches, between the calls that bring them and the train loop.
#ifndef TESSERA_WORKER_ACTIVATIONS_ACTIVATION_INBOX_H_
#define TESSERA_WORKER_ACTIVATIONS_ACTIVATION_INBOX_H_

#include <functional>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/base/wakeup.h"
#include "common/codec/payload.h"
#include "worker/activations/activation_exchange.h"
#include "worker/activations/activation_queue.h"

namespace tessera {

// A lock and a wait around ActivationQueue. Next and Answer: the train loop's thread. All else: any thread; answers
// come on whichever has them.
class ActivationInbox final : public ActivationReceiver {
 public:
  // `on_wait` is called once in each wait that is not a short one, as whoever is waited for may be gone, and
  // wherever who takes part is not known.
  explicit ActivationInbox(
      const ActivationQueue::Options& options, std::function<void()> on_wait = [] {})
      : on_wait_(std::move(on_wait)), queue_(options) {}

  void SetWorkers(const v1::WorkerList& list);
  // This worker is to leave: it waits for nobody if nobody has data.
  void Leave();
  // Ends the waits, now and later, of those who have sent batches, too.
  void Cancel();

  // Checks a batch before its payload comes (ActivationQueue::Check).
  absl::Status Check(const ComingBatch& batch) const;
  //   kUnavailable  this worker is to end
  absl::Status Deliver(const ComingBatch& batch, const Payload& payload, Answered answered);

  // Batches that have come and are not taken yet, of all steps.
  size_t waiting() const {
    absl::MutexLock lock(&mutex_);
    return queue_.waiting();
  }

  absl::StatusOr<const Batch*> Next(uint64_t step, Generation plan) override;
  void Answer(double loss, absl::Span<const float> gradient) override;

 private:
  // "worker 0, worker 2"
  std::string MissingNames(Generation plan) const;

  const std::function<void()> on_wait_;
  Wakeup moved_;
  mutable absl::Mutex mutex_;
  ActivationQueue queue_ ABSL_GUARDED_BY(mutex_);
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace tessera

#endif  // TESSERA_WORKER_ACTIVATIONS_ACTIVATION_INBOX_H_
