// One membership of a worker in its job: from joining to leaving, or to the moment at which the job goes back to a
// checkpoint and the worker joins again.
#ifndef TESSERA_WORKER_WORKER_MEMBERSHIP_H_
#define TESSERA_WORKER_WORKER_MEMBERSHIP_H_

#include <memory>
#include <optional>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "common/base/wakeup.h"
#include "common/etcd/coordinator_key.h"
#include "proto/coordinator.pb.h"
#include "worker/checkpoint/worker_saver.h"
#include "worker/layer_partners.h"
#include "worker/prepared_worker.h"
#include "worker/rpc/coordinator_client.h"
#include "worker/rpc/parameter_client_grpc.h"
#include "worker/rpc/remote_coordination.h"
#include "worker/train/learner.h"
#include "worker/train/train_loop.h"
#include "worker/worker_options.h"

namespace tessera {

// One thread, the process's main one, but for AskToLeave and is_training.
class WorkerMembership {
 public:
  // `before`: the worker's admission to the membership before this one; not admitted where there was none. `work`: what
  // it did then. `layers` and `finder` may be nullptr. All but those two outlive it.
  WorkerMembership(const WorkerOptions* options, PreparedWorker* worker, LayerPartners* layers,
                   CoordinatorFinder* finder, v1::JoinReply before, std::optional<LifeBefore> work)
      : options_(*options),
        worker_(*worker),
        layers_(layers),
        finder_(finder),
        before_(std::move(work)),
        admission_(std::move(before)) {}

  // Joins and trains. The first error ends it; kCancelled: the worker was asked to leave before it had begun.
  absl::Status Run();
  // After an error of Run: whether the job went back to a checkpoint, or is about to. May wait for word of that.
  bool MayRejoin(const absl::Status& status);
  // Ends the membership of a worker that joins again. Its work is in the report of the next one.
  LifeBefore End();
  // After Run, which has returned `status`, where the worker does not join again: says so to the coordinator. Returns
  // what the worker's life has come to. `is_wanted`: it was asked to leave.
  absl::Status Leave(absl::Status status, bool is_wanted);

  // Any thread: the worker leaves after its exchange, or before it has joined.
  void AskToLeave();
  // Any thread: the worker ends without another exchange, and Run returns `why`.
  void Abandon(absl::Status why);
  // Any thread: it has a train loop.
  bool is_training() const {
    absl::MutexLock lock(&mutex_);
    return loop_ != nullptr;
  }
  const v1::JoinReply& admission() const { return admission_; }
  // After Leave: whether it was asked to leave while the job went on, and did.
  bool left_early() const { return left_early_; }

 private:
  absl::Status Join();
  bool SharesMemory() const;
  absl::Status Connect();
  absl::Status MakeLearner();
  absl::Status MakeSaver();
  absl::Status UseOwnDisks(WorkerSaver::Options* saver);
  // Where shards are led now: addresses, each once, at the rank of a shard. The others are empty.
  std::vector<std::string> LeadersByRank() const;
  v1::WorkerReport Report() const;
  // What the thread that renews the lease tells.
  void OnLost(absl::Status why);
  void OnServers(const v1::ServerList& list);
  void OnAway(bool is_away);
  // Ends the process if the train loop does not, because it hangs.
  void EndStalled();

  const WorkerOptions& options_;
  PreparedWorker& worker_;
  LayerPartners* const layers_;
  CoordinatorFinder* const finder_;
  const std::optional<LifeBefore> before_;
  v1::JoinReply admission_;
  mutable absl::Mutex mutex_;
  v1::ServerList server_list_ ABSL_GUARDED_BY(mutex_);  // as of the last renewal that brought one
  std::unique_ptr<Learner> learner_;
  std::unique_ptr<CoordinatorClient> coordinator_;
  std::unique_ptr<RemoteCoordination> coordination_;
  std::unique_ptr<WorkerSaver> saver_;  // whose thread asks for the list
  bool left_early_ = false;

  // Set while they may be told to stop.
  std::unique_ptr<ParameterClientGrpc> servers_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<TrainLoop> loop_ ABSL_GUARDED_BY(mutex_);
  CoordinatorClient* joining_ ABSL_GUARDED_BY(mutex_) = nullptr;
  bool is_away_ ABSL_GUARDED_BY(mutex_) = false;  // the coordinator
  bool asked_to_leave_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status lost_ ABSL_GUARDED_BY(mutex_);
  Wakeup loop_over_;  // its train loop has returned
};

}  // namespace tessera

#endif  // TESSERA_WORKER_WORKER_MEMBERSHIP_H_
