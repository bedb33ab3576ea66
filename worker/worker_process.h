// One tessera-worker: joins a job, trains to its end, leaves.
#ifndef TESSERA_WORKER_WORKER_PROCESS_H_
#define TESSERA_WORKER_WORKER_PROCESS_H_

#include <memory>
#include <optional>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "common/etcd/coordinator_key.h"
#include "common/etcd/etcd_client.h"
#include "proto/coordinator.pb.h"
#include "proto/job.pb.h"
#include "worker/layer_partners.h"
#include "worker/prepared_worker.h"
#include "worker/train/train_loop.h"
#include "worker/worker_membership.h"
#include "worker/worker_options.h"

namespace tessera {

// One thread, the process's main one, but for OnSignal.
class WorkerProcess {
 public:
  // `options` outlives it.
  explicit WorkerProcess(const WorkerOptions* options) : options_(*options) {}

  // Everything that can be wrong before anybody is told of this worker.
  absl::Status Prepare(const v1::Job& job);
  // Trains from joining to leaving; joins again where the job goes back to a checkpoint.
  absl::Status Train();
  // Called by the signal thread.
  void OnSignal(int count);
  // The worker leaves after its exchange, or before it has joined. Any thread.
  void Leave();
  // The worker ends without another exchange, and Train returns `why`. Any thread.
  void Abandon(const absl::Status& why);
  // After Prepare.
  const PreparedWorker& prepared() const { return *worker_; }

  // The rest is of what has become of it, after Train.
  bool joined() const;
  // Whether the worker was asked to leave while the job went on, and did.
  bool left_early() const;
  // Whether what Train returned is that it was asked to leave before it had begun, and did.
  bool has_left(const absl::Status& status) const;

 private:
  // A membership in the place of the present one, whose admission and work it continues.
  WorkerMembership* Begin(v1::JoinReply before, std::optional<LifeBefore> work);

  const WorkerOptions& options_;
  std::unique_ptr<PreparedWorker> worker_;
  std::unique_ptr<LayerPartners> layers_;  // where workers train different layers
  std::unique_ptr<EtcdClient> etcd_;       // where the servers elect the coordinator
  std::unique_ptr<CoordinatorFinder> finder_;

  mutable absl::Mutex mutex_;
  std::unique_ptr<WorkerMembership> membership_ ABSL_GUARDED_BY(mutex_);
  bool asked_to_leave_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status abandoned_ ABSL_GUARDED_BY(mutex_);  // not OK: why
};

}  // namespace tessera

#endif  // TESSERA_WORKER_WORKER_PROCESS_H_
