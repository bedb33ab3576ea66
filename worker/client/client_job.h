// One membership-keeping worker behind the client library: its thread, and the calls of whoever computes.
#ifndef TESSERA_WORKER_CLIENT_CLIENT_JOB_H_
#define TESSERA_WORKER_CLIENT_CLIENT_JOB_H_

#include <sys/types.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/layout/parameters.h"
#include "worker/client/caller_learner.h"
#include "worker/client/turns.h"
#include "worker/own_model.h"
#include "worker/worker_options.h"
#include "worker/worker_process.h"

namespace tessera {

// It has more public methods than other classes: it is all that a caller may ask or answer (tessera_client.h),
// and what the worker asks of its model.
//
// Calls come from one thread at a time, but for Leave. Those that take an answer wait for the next question.
class ClientJob final : public OwnModel {
 public:
  // One exchanged tensor, as the caller sees it.
  struct Tensor {
    std::string name;
    std::vector<int64_t> dims;
    int64_t size = 0;
    size_t parameter = 0;  // its own index, or that of the parameter that it is a state of
    std::string state;     // of the optimizer: what it is; empty: a parameter
  };

  // A group of units that subnets cut.
  struct Group {
    std::string name;  // in a job of layers that of the first layer that makes the units
    int64_t units = 0;
  };

  // Reads the job and its data. Errors are for whoever started the program.
  static absl::StatusOr<std::unique_ptr<ClientJob>> Create(WorkerOptions options,
                                                           std::string description);
  // Leaves, and waits for its thread.
  ~ClientJob() override;

  // Joins; Await says when it has.
  void Start();
  // Waits for the next question, which may be that there is none (kEnd); see Turns.
  absl::Status Await(Want* want) { return turns_.Await(timeout_, want); }
  void set_timeout(absl::Duration timeout) { timeout_ = timeout; }

  // Answers. `values` are one array for each tensor, `gradients` one for each parameter, or none. Where the whole model
  // is shown for an evaluation alone Pull takes no arrays as well.
  absl::Status Pull(absl::Span<float* const> values);
  absl::Status Step(uint64_t examples, double loss);
  absl::Status DoExchange(absl::Span<const float* const> gradients,
                          absl::Span<float* const> values);
  absl::Status Evaluate(double loss, double score, uint64_t rows);
  absl::Status SaveState(absl::string_view bytes);

  // Any thread: it leaves its job.
  void Leave() { process_->Leave(); }
  // Leaves, ends what does not end by itself, and returns what it has come to. Where its thread hangs it is left to
  // itself, and this object has to stay for it: has_stalled.
  absl::Status Close();
  bool has_stalled() const { return stalled_; }
  // In this membership the first values have been asked for, and given.
  bool has_pulled() const { return pulled_; }

  const WorkerOptions& options() const { return options_; }
  const v1::Job& job() const { return process_->prepared().job; }
  const Recipe& recipe() const { return process_->prepared().recipe; }
  const std::vector<Tensor>& tensors() const { return tensors_; }
  size_t parameter_count() const { return parameter_count_; }
  bool pushes_gradient() const { return recipe().payload == PayloadKind::kGradient; }
  // The job's model is of tensors, and says nothing about layers.
  bool is_of_tensors() const { return job().model().has_tensor_layout(); }
  // In the order of their numbers, from 1 on; none in jobs without subnets.
  const std::vector<Group>& groups() const { return groups_; }
  // What the arrays are of that the last verdict asks for or that there are now. It stays for as long as whoever calls
  // holds it.
  //   kFailedPrecondition  the job has no subnets, or the first values have not come
  absl::StatusOr<std::shared_ptr<const CallerCut>> Cut(absl::string_view function) const;
  // The extents of a tensor in `cut`.
  std::vector<int64_t> DimsIn(const CallerCut& cut, size_t tensor) const;
  bool has_rows() const { return job().has_data(); }
  Want shown() const { return turns_.shown(); }
  absl::Status end() const { return turns_.end(); }
  // While a question is shown.
  uint64_t rank() const { return rank_; }
  uint64_t member() const { return member_; }
  const CallerExchange& exchange() const { return exchange_; }

  std::string description() const override { return description_; }
  void BeginMembership() override;
  void WaitsFor(absl::string_view whom) override { turns_.SetWaitingFor(whom); }
  absl::StatusOr<std::unique_ptr<Learner>> MakeLearner(const PreparedWorker& worker,
                                                       const v1::JoinReply& admission) override;
  void OnStalled(const absl::Status& why) override;
  void Cancel(absl::Status why) override { turns_.Cancel(why); }

 private:
  ClientJob(WorkerOptions options, std::string description)
      : options_(std::move(options)), description_(std::move(description)) {
    options_.own_model = this;
  }
  void NameTensors(const PreparedWorker& worker);
  void NameGroups(const PreparedWorker& worker);
  absl::Status CheckArrays(absl::string_view function, absl::string_view what,
                           absl::Span<const float* const> arrays, size_t wanted) const;

  WorkerOptions options_;
  const std::string description_;
  std::unique_ptr<WorkerProcess> process_;
  std::vector<Tensor> tensors_;
  std::vector<Group> groups_;
  size_t parameter_count_ = 0;
  absl::Duration timeout_ = absl::InfiniteDuration();
  Turns turns_;
  // What follows is the worker's thread's, and the caller's while it is its turn.
  CallerExchange exchange_;
  uint64_t rank_ = 0;
  uint64_t member_ = 0;
  std::thread thread_;
  std::atomic<bool> stalled_{false};
  std::atomic<bool> pulled_{false};
};

}  // namespace tessera

#endif  // TESSERA_WORKER_CLIENT_CLIENT_JOB_H_
