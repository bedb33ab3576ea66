// A model whose minibatches somebody else computes: what a worker process asks of it in place of a Replica.
#ifndef TESSERA_WORKER_OWN_MODEL_H_
#define TESSERA_WORKER_OWN_MODEL_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/coordinator.pb.h"
#include "worker/prepared_worker.h"
#include "worker/train/learner.h"

namespace tessera {

// Methods are called on the thread that runs WorkerProcess::Train, but for OnStalled and Cancel.
class OwnModel {
 public:
  virtual ~OwnModel() = default;

  // What computes, for status and report: "PyTorch 1.13.1".
  virtual std::string description() const = 0;
  // A membership begins: from now on the model's learners wait for their caller, until Cancel.
  virtual void BeginMembership() = 0;
  // The worker waits for these before it is admitted: "the servers", "worker 2".
  virtual void WaitsFor(absl::string_view whom) = 0;
  // The worker has been admitted. `worker` outlives the learner.
  //   kUnimplemented  models of callers are not trained by the job's method
  virtual absl::StatusOr<std::unique_ptr<Learner>> MakeLearner(const PreparedWorker& worker,
                                                               const v1::JoinReply& admission) = 0;
  // The membership is lost, for `why`, and the thread that runs WorkerProcess::Train has not come back from it for as
  // long as anybody waits: whoever waits for it need not. Any thread.
  virtual void OnStalled(const absl::Status& why) = 0;
  // Nothing more is learned in this membership: a learner that waits for its caller, and the next one that is made,
  // returns `why`. Any thread.
  virtual void Cancel(absl::Status why) = 0;
};

}  // namespace tessera

#endif  // TESSERA_WORKER_OWN_MODEL_H_
