// A worker process: what it has, and the lives that it may have as a member of its job.
#ifndef TESSERA_WORKER_WORKER_LIFE_H_
#define TESSERA_WORKER_WORKER_LIFE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "common/base/wakeup.h"
#include "common/config/job_digest.h"
#include "common/etcd/coordinator_key.h"
#include "common/etcd/etcd_client.h"
#include "common/layout/parameters.h"
#include "common/method/recipe.h"
#include "worker/checkpoint/worker_saver.h"
#include "worker/data/dataset.h"
#include "worker/replica/subnet_memory.h"
#include "worker/rpc/coordinator_client.h"
#include "worker/rpc/layer_exchange.h"
#include "worker/rpc/parameter_client_grpc.h"
#include "worker/rpc/remote_coordination.h"
#include "worker/train/learner.h"
#include "worker/train/train_loop.h"
#include "worker/worker_process.h"

namespace tessera {

class WorkerProcess {
 public:
  WorkerProcess(const WorkerOptions& options, v1::Job job)
      : options_(options), job_(std::move(job)), digest_(JobDigest(job_)) {}

  // Everything that can be wrong before anybody is told of this worker.
  absl::Status Prepare();
  // Trains from joining to leaving; joins again where the job goes back to a checkpoint.
  absl::Status Train();
  // Called by the signal thread.
  void OnSignal(int count);
  bool joined() const { return admission_.admitted(); }
  // After Train: whether the worker was asked to leave while the job went on, and did.
  bool left_early() const { return left_early_; }
  // What Train returned is that it was asked to leave before it had begun, and did.
  bool has_left(const absl::Status& status) const {
    absl::MutexLock lock(&mutex_);
    return asked_to_leave_ && absl::IsCancelled(status);
  }

 private:
  absl::Status CheckMemory();
  // The door for other workers, where they speak to each other.
  absl::Status Listen();
  // Finds the address to listen at; refused where others could not call it, or anybody could.
  absl::Status CheckListen(std::string* listen) const;
  absl::Status CheckPrecision() const;
  // The scratch that a device with memory of its own needs.
  absl::StatusOr<int64_t> DeviceScratch(int64_t calibration_rows) const;
  absl::Status CheckDeviceMemory();
  absl::Status Connect();
  absl::Status MakeLearner();
  void BeginLayers();
  // Trains as one member.
  absl::Status TrainOnce();
  // After an error of TrainOnce: whether the job went back to a checkpoint, or is about to.
  bool MayRejoin(const absl::Status& status);
  // Ends this membership; its work is in the report of the next one.
  void Forget();
  // Whether rows were read as the checkpoint in `restored` was trained; tells where they are others.
  absl::Status CheckFacts(const std::string& restored, const v1::Resume& resume);
  absl::Status MakeSaver();
  v1::WorkerReport Report() const;
  void OnLost(absl::Status why);
  // Ends the process if the train loop does not, because it hangs.
  void EndStalled();
  void OnServers(const v1::ServerList& list);
  void OnWorkers(const v1::WorkerList& list);
  void OnAway(bool is_away);
  bool has_checkpoints() const {
    return !job_.checkpoint().directory().empty() || !job_.checkpoint().restore().empty();
  }
  bool loop_exists() const {
    absl::MutexLock lock(&mutex_);
    return loop_ != nullptr;
  }

  const WorkerOptions& options_;
  const v1::Job job_;
  const std::string digest_;
  ModelShape shape_;
  Recipe recipe_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Datasets> data_;
  uint64_t train_sum_ = 0, test_sum_ = 0;
  SubnetMemory subnet_memory_;             // where subnets are trained
  std::unique_ptr<LayerExchange> layers_;  // where workers train different layers
  std::unique_ptr<Learner> learner_;
  std::unique_ptr<EtcdClient> etcd_;  // where the servers elect the coordinator
  std::unique_ptr<CoordinatorFinder> finder_;
  std::unique_ptr<CoordinatorClient> coordinator_;
  std::unique_ptr<RemoteCoordination> coordination_;
  std::unique_ptr<WorkerSaver> saver_;
  std::optional<LifeBefore> before_;
  v1::JoinReply admission_;
  bool left_early_ = false;

  mutable absl::Mutex mutex_;
  // Set while they may be told to stop.
  std::unique_ptr<ParameterClientGrpc> servers_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<TrainLoop> loop_ ABSL_GUARDED_BY(mutex_);
  CoordinatorClient* joining_ ABSL_GUARDED_BY(mutex_) = nullptr;
  v1::ServerList server_list_ ABSL_GUARDED_BY(mutex_);  // as of the last renewal that brought one
  bool is_away_ ABSL_GUARDED_BY(mutex_) = false;        // the coordinator
  bool asked_to_leave_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status lost_ ABSL_GUARDED_BY(mutex_);
  Wakeup loop_over_;  // its train loop has returned
};

}  // namespace tessera

#endif  // TESSERA_WORKER_WORKER_LIFE_H_
