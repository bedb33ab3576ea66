#include "worker/client/client_job.h"

#include <stdlib.h>

#include <algorithm>
#include <cmath>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/steady_clock.h"
#include "common/config/job_reader.h"
#include "common/keyset/subnet.h"
#include "common/rpc/rpc_needs.h"
#include "worker/client/caller_subnet_learner.h"

namespace tessera {
namespace {

// How long a worker that leaves may take for its last exchange before it is ended without.
constexpr absl::Duration kLeavePatience = absl::Seconds(10);
// And then until it is left to itself.
constexpr absl::Duration kEndPatience = absl::Seconds(30);

}  // namespace

absl::StatusOr<std::unique_ptr<ClientJob>> ClientJob::Create(WorkerOptions options,
                                                             std::string description) {
  // Errors are said once, in our words; the environment may ask for gRPC's as well.
  setenv("GRPC_VERBOSITY", "NONE", /*overwrite=*/0);
  TESSERA_RETURN_IF_ERROR(CheckPollStrategy());
  // As tessera-worker reads it: whatever is wrong with the job file is said before anybody hears of this worker.
  const JobOptions checks{/*check_files=*/true, /*check_security=*/true, /*check_restore=*/false};
  const JobReading reading = ReadJobFile(options.job_path, options.overrides, checks);
  if (!reading.ok()) return absl::InvalidArgumentError(FormatJobErrors(reading.errors));
  std::unique_ptr<ClientJob> job(new ClientJob(std::move(options), std::move(description)));
  job->process_ = std::make_unique<WorkerProcess>(&job->options_);
  TESSERA_RETURN_IF_ERROR(job->process_->Prepare(reading.job));
  job->NameTensors(job->process_->prepared());
  job->NameGroups(job->process_->prepared());
  return job;
}

void ClientJob::NameGroups(const PreparedWorker& worker) {
  if (!worker.recipe.subnets) return;
  const ModelShape& shape = worker.shape;
  const NeuronGroups groups = GroupsOf(shape, worker.recipe.subnet_rules);
  for (int number = 1; number < groups.outputs; ++number) {
    Group group;
    group.units = groups.widths[static_cast<size_t>(number)];
    if (shape.layers.empty()) {
      group.name = shape.groups[static_cast<size_t>(number - 1)].name;
    } else {
      const auto made = std::find(groups.activations.begin(), groups.activations.end(), number);
      // Activation i + 1 is what layer i makes.
      group.name = shape.layers[static_cast<size_t>(made - groups.activations.begin() - 1)].name;
    }
    groups_.push_back(std::move(group));
  }
}

absl::StatusOr<std::shared_ptr<const CallerCut>> ClientJob::Cut(absl::string_view function) const {
  if (!recipe().subnets) {
    return absl::FailedPreconditionError(
        absl::StrCat(function, ": method ", recipe().name,
                     " gives all workers the whole model, want one of subnets"));
  }
  std::shared_ptr<const CallerCut> cut = exchange_.cut();
  if (cut == nullptr) {
    return absl::FailedPreconditionError(absl::StrCat(
        function, ": the first round's values have not come; go on with tessera_wait"));
  }
  return cut;
}

std::vector<int64_t> ClientJob::DimsIn(const CallerCut& cut, size_t tensor) const {
  const ParameterSpec& spec = process_->prepared().shape.parameters[tensor];
  const CallerCut::Extents& extents = cut.extents[tensor];
  std::vector<int64_t> dims = tensors_[tensor].dims;
  // Rows are the first extent, and columns are cut in blocks of what the extents behind the second one make.
  if (!dims.empty()) dims[0] = extents.rows;
  if (dims.size() > 1) dims[1] = dims[1] * extents.columns / spec.columns;
  return dims;
}

void ClientJob::NameTensors(const PreparedWorker& worker) {
  const std::vector<ParameterSpec>& specs = worker.shape.parameters;
  const std::vector<std::string>& states = worker.recipe.averaged_states;
  parameter_count_ = specs.size() / (1 + states.size());
  for (size_t i = 0; i < specs.size(); ++i) {
    Tensor tensor;
    tensor.name = specs[i].name;
    tensor.dims = {specs[i].rows};
    // A convolution's matrix [channels, k] is shown with the extents of k, so that it fits the module of PyTorch.
    if (!specs[i].columns_are.empty()) {
      tensor.dims.insert(tensor.dims.end(), specs[i].columns_are.begin(),
                         specs[i].columns_are.end());
    } else if (!specs[i].is_vector) {
      tensor.dims.push_back(specs[i].columns);
    }
    if (worker.job.model().has_tensor_layout()) {
      const auto& dims = worker.job.model().tensor_layout().tensors(i % parameter_count_).dims();
      tensor.dims.assign(dims.begin(), dims.end());
    }
    tensor.size = specs[i].size();
    tensor.parameter = static_cast<size_t>(i % parameter_count_);
    if (i >= parameter_count_) tensor.state = states[i / parameter_count_ - 1];
    tensors_.push_back(std::move(tensor));
  }
}

ClientJob::~ClientJob() { Close().IgnoreError(); }

void ClientJob::Start() {
  turns_.SetWaitingFor("the coordinator");
  thread_ = std::thread([this] {
    // The worker from its first membership to its last. The caller's thread meets it in turns_ alone.
    const absl::Status status = process_->Train();
    if (!stalled_) turns_.End(process_->has_left(status) ? absl::OkStatus() : status);
  });
}

void ClientJob::OnStalled(const absl::Status& why) {
  stalled_ = true;
  turns_.End(why);
}

void ClientJob::BeginMembership() { turns_.BeginAgain(); }

absl::StatusOr<std::unique_ptr<Learner>> ClientJob::MakeLearner(const PreparedWorker& worker,
                                                                const v1::JoinReply& admission) {
  pulled_ = false;
  rank_ = admission.rank();
  member_ = admission.member();
  CallerLearner::Options options;
  options.job = worker.job;
  options.recipe = worker.recipe;
  options.exchanged = worker.shape;
  options.rank = Rank(admission.rank());
  options.first = Exchange(admission.first_exchange());
  if (worker.recipe.subnets) {
    turns_.SetWaitingFor("");
    return CallerSubnetLearner::Create(std::move(options), worker.backend.get(), &turns_,
                                       &exchange_);
  }
  TESSERA_ASSIGN_OR_RETURN(
      std::unique_ptr<CallerLearner> learner,
      CallerLearner::Create(std::move(options), worker.backend.get(), &turns_, &exchange_));
  turns_.SetWaitingFor("");
  // Whoever joined hears of it here: tessera_join returns, and tessera_pull brings the memory.
  TESSERA_RETURN_IF_ERROR(learner->AwaitMemory());
  return learner;
}

absl::Status ClientJob::CheckArrays(absl::string_view function, absl::string_view what,
                                    absl::Span<const float* const> arrays, size_t wanted) const {
  if (arrays.size() != wanted) {
    return absl::InvalidArgumentError(absl::StrCat(function, ": got ", arrays.size(), " ", what,
                                                   ", want ", wanted,
                                                   ", one for each tensor of the job"));
  }
  for (size_t i = 0; i < arrays.size(); ++i) {
    if (arrays[i] != nullptr || tensors_[i].size == 0) continue;
    const std::shared_ptr<const CallerCut> cut = exchange_.cut();
    int64_t size = tensors_[i].size;
    if (cut != nullptr) size = cut->extents[i].rows * cut->extents[i].columns;
    return absl::InvalidArgumentError(absl::StrCat(function, ": ", what, "[", i, "] is NULL, want ",
                                                   size, " floats for \"", tensors_[i].name, "\""));
  }
  return absl::OkStatus();
}

absl::Status ClientJob::Pull(absl::Span<float* const> values) {
  const std::shared_ptr<const CallerCut> cut = exchange_.cut();
  const bool scores_nothing = values.empty() && cut != nullptr && cut->is_evaluation;
  if (!scores_nothing) {
    TESSERA_RETURN_IF_ERROR(CheckArrays("tessera_pull", "values", values, tensors_.size()));
  }
  return turns_.Answer(Want::kValues, [&] {
    exchange_.values.assign(values.begin(), values.end());
    pulled_ = true;
  });
}

absl::Status ClientJob::Step(uint64_t examples, double loss) {
  if (examples == 0) {
    return absl::InvalidArgumentError(
        "tessera_step: examples are 0, want the rows of the minibatch, at least 1");
  }
  return turns_.Answer(Want::kMinibatch, [&] {
    exchange_.examples = examples;
    exchange_.loss = loss;
  });
}

absl::Status ClientJob::DoExchange(absl::Span<const float* const> gradients,
                                   absl::Span<float* const> values) {
  constexpr absl::string_view kFunction = "tessera_exchange";
  TESSERA_RETURN_IF_ERROR(CheckArrays(kFunction, "values", values, tensors_.size()));
  if (pushes_gradient()) {
    TESSERA_RETURN_IF_ERROR(CheckArrays(kFunction, "gradients", gradients, parameter_count_));
  } else if (!gradients.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(kFunction, ": got gradients, want NULL: with method ", recipe().name,
                     " the change of the values is pushed, and the caller's optimizer makes it"));
  }
  return turns_.Answer(Want::kExchange, [&] {
    exchange_.values.assign(values.begin(), values.end());
    exchange_.gradients.assign(gradients.begin(), gradients.end());
  });
}

absl::Status ClientJob::Evaluate(double loss, double score, uint64_t rows) {
  if (rows > 0 && !std::isfinite(score)) {
    return absl::InvalidArgumentError(
        absl::StrCat("tessera_evaluate: score is ", score, ", want a finite number"));
  }
  if (rows > 0 && !is_of_tensors() && !(score >= 0 && score <= 1)) {
    return absl::InvalidArgumentError(
        absl::StrCat("tessera_evaluate: score is ", score, ", want the accuracy, in [0, 1]"));
  }
  return turns_.Answer(Want::kScores, [&] {
    exchange_.scores = Scores();
    exchange_.scores.counts_hits = false;
    if (rows == 0) return;
    exchange_.scores.rows = static_cast<int64_t>(rows);
    exchange_.scores.loss_sum = loss * static_cast<double>(rows);
    if (is_of_tensors()) {
      exchange_.scores.score_sum = score * static_cast<double>(rows);
    } else {
      exchange_.scores.correct = std::llround(score * static_cast<double>(rows));
    }
  });
}

absl::Status ClientJob::SaveState(absl::string_view bytes) {
  return turns_.Answer(Want::kState, [&] { exchange_.state.assign(bytes.data(), bytes.size()); });
}

absl::Status ClientJob::Close() {
  if (!thread_.joinable()) return turns_.end();
  if (stalled_) {
    thread_.detach();
    return turns_.end();
  }
  process_->Leave();
  Want want = Want::kNothing;
  // A question may still come to the caller that leaves: its answers are not waited for any more. Where a last exchange
  // is under way it ends first, so that what was learned is not lost.
  if (!turns_.Await(kLeavePatience, &want).ok() || want != Want::kEnd) {
    process_->Abandon(absl::CancelledError("the program has closed the job"));
  }
  // Questions are over by now: its thread comes back, or hangs, as on a disk.
  const absl::Time limit = SteadyNow() + kEndPatience;
  while (want != Want::kEnd && SteadyNow() < limit) {
    turns_.Await(limit - SteadyNow(), &want).IgnoreError();
  }
  if (want != Want::kEnd) OnStalled(absl::DeadlineExceededError("its thread has not come back"));
  if (stalled_) {
    thread_.detach();
  } else {
    thread_.join();
  }
  return turns_.end();
}

}  // namespace tessera
