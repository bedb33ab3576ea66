// The C interface: handles, statuses and messages around ClientJob. Nothing leaves it by an exception.
#include "worker/client/tessera_client.h"

#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <map>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "common/base/check.h"
#include "common/base/log.h"
#include "common/base/process.h"
#include "worker/client/client_job.h"

// What a handle points to.
struct tessera_job {
  std::unique_ptr<tessera::ClientJob> job;
  // What the last call has told of a round stays until the next.
  std::shared_ptr<const tessera::CallerCut> cut;
  std::vector<int64_t> dims;
  std::atomic<bool> in_call{false};  // a thread makes a call
};

namespace tessera {
namespace {

thread_local std::string last_message;

// The process that joined first; calls of its children are refused before they take a lock that may be held for ever.
std::atomic<pid_t> joined_process{0};

// The handles that are open, so that one that was closed is recognised. Never destroyed: threads may outlive main.
struct Handles {
  absl::Mutex mutex;
  std::map<const tessera_job*, std::shared_ptr<tessera_job>> open ABSL_GUARDED_BY(mutex);
};
Handles& OpenHandles() {
  static Handles* const handles = new Handles;
  return *handles;
}

tessera_status Told(const absl::Status& status) {
  if (status.ok()) return TESSERA_OK;
  last_message = std::string(status.message());
  return static_cast<tessera_status>(status.code());
}

// Runs `call`, which returns an absl::Status; what it throws becomes one.
template <typename Call>
tessera_status Guarded(const char* function, Call call) {
  try {
    return Told(call());
  } catch (const std::bad_alloc&) {
    return Told(absl::ResourceExhaustedError(absl::StrCat(function, ": no memory")));
  } catch (const std::exception& error) {
    return Told(absl::InternalError(absl::StrCat(function, ": ", error.what())));
  } catch (...) {
    return Told(absl::InternalError(absl::StrCat(function, ": an exception of no known kind")));
  }
}

absl::Status CheckProcess(const char* function) {
  const pid_t joined = joined_process.load();
  if (joined == 0 || joined == getpid()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(function, ": this process is a child that process ", joined,
                   " forked after it had joined; threads of the library stayed there. Start "
                   "the child as a new program (Python: multiprocessing's \"spawn\")"));
}

// The handle, which stays alive while the pointer does.
absl::StatusOr<std::shared_ptr<tessera_job>> Find(const char* function, const tessera_job* handle) {
  TESSERA_RETURN_IF_ERROR(CheckProcess(function));
  Handles& handles = OpenHandles();
  absl::MutexLock lock(&handles.mutex);
  const auto found = handles.open.find(handle);
  if (found != handles.open.end()) return found->second;
  return absl::InvalidArgumentError(
      absl::StrCat(function, ": no such job; it was closed, or was never joined"));
}

// A call of the thread that computes, which no other thread may make meanwhile.
template <typename Call>
tessera_status Called(const char* function, const tessera_job* handle, Call call) {
  return Guarded(function, [&]() -> absl::Status {
    TESSERA_ASSIGN_OR_RETURN(const std::shared_ptr<tessera_job> held, Find(function, handle));
    if (held->in_call.exchange(true)) {
      return absl::FailedPreconditionError(absl::StrCat(
          function, ": another thread is in a call of this job; they come from one at a time"));
    }
    struct EndOfCall {
      std::atomic<bool>& in_call;
      ~EndOfCall() { in_call = false; }
    } end_of_call{held->in_call};
    return call(held.get());
  });
}

absl::StatusOr<tessera_verdict> VerdictOf(Want want, const ClientJob& job) {
  switch (want) {
    case Want::kMinibatch:
      return TESSERA_TRAIN;
    case Want::kExchange:
      return TESSERA_EXCHANGE;
    case Want::kScores:
      return TESSERA_EVALUATE;
    case Want::kState:
      return TESSERA_SAVE;
    case Want::kValues:
      return TESSERA_PULL;
    case Want::kNothing:
    case Want::kEnd:
      break;
  }
  TESSERA_RETURN_IF_ERROR(job.end());
  return TESSERA_STOP;
}

// Waits for what the job wants next.
absl::Status AwaitVerdict(ClientJob* job, tessera_verdict* verdict) {
  Want want = Want::kNothing;
  TESSERA_RETURN_IF_ERROR(job->Await(&want));
  TESSERA_ASSIGN_OR_RETURN(*verdict, VerdictOf(want, *job));
  return absl::OkStatus();
}

// Answers, and waits for what the job wants next.
template <typename Answer>
tessera_status AnswerThenWait(const char* function, const tessera_job* handle,
                              tessera_verdict* verdict, Answer answer) {
  return Called(function, handle, [&](tessera_job* held) -> absl::Status {
    if (verdict == nullptr) {
      return absl::InvalidArgumentError(absl::StrCat(function, ": verdict is NULL"));
    }
    ClientJob& job = *held->job;
    // What the job came to says more than that nothing is wanted, and is said again by every later call.
    if (job.shown() == Want::kEnd) {
      TESSERA_RETURN_IF_ERROR(job.end());
      return absl::FailedPreconditionError(absl::StrCat(
          function, ": training is over (the verdict was TESSERA_STOP); call tessera_close"));
    }
    TESSERA_RETURN_IF_ERROR(answer(&job));
    return AwaitVerdict(&job, verdict);
  });
}

// The caller's struct has the size of this library's, or of an older one that ended earlier.
template <typename Struct>
absl::Status CheckStruct(const char* function, const Struct* value) {
  if (value == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat(function, ": got NULL in place of a struct"));
  }
  if (value->struct_size >= sizeof(size_t) && value->struct_size <= sizeof(Struct)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      function, ": struct_size is ", value->struct_size, ", want sizeof, which is ", sizeof(Struct),
      " in this library (", kVersion, "); or the program was built ", "for a newer one"));
}

// The tensor of this number.
absl::StatusOr<const ClientJob::Tensor*> TensorAt(const char* function, const ClientJob& job,
                                                  int64_t index) {
  const std::vector<ClientJob::Tensor>& tensors = job.tensors();
  if (index >= 0 && index < static_cast<int64_t>(tensors.size())) {
    return &tensors[static_cast<size_t>(index)];
  }
  return absl::InvalidArgumentError(
      absl::StrCat(function, ": index is ", index, ", want one in [0, ", tensors.size(), ")"));
}

// What is told of a tensor beside its extents.
tessera_tensor ToldOf(const ClientJob::Tensor& of) {
  tessera_tensor told = {};
  told.name = of.name.c_str();
  told.kind = of.state.empty() ? TESSERA_PARAMETER : TESSERA_OPTIMIZER_STATE;
  told.dim_count = static_cast<int32_t>(of.dims.size());
  told.parameter = static_cast<int64_t>(of.parameter);
  told.state = of.state.c_str();
  return told;
}

// As much of `from` as the caller's struct has room for.
template <typename Struct>
void CopyOut(const Struct& from, Struct* to) {
  const size_t size = to->struct_size;
  std::memcpy(static_cast<void*>(to), &from, size);
  to->struct_size = size;
}

absl::StatusOr<absl::Duration> TimeoutOf(const char* function, double seconds) {
  if (!(seconds >= 0)) {
    return absl::InvalidArgumentError(
        absl::StrCat(function, ": timeout is ", seconds, " seconds, want 0 (none) or more"));
  }
  return seconds > 0 ? absl::Seconds(seconds) : absl::InfiniteDuration();
}

absl::Status SetLevel(const char* name) {
  const std::string level = name != nullptr ? name : "warning";
  if (level == "debug") {
    SetLogLevel(LogLevel::kDebug);
  } else if (level == "info") {
    SetLogLevel(LogLevel::kInfo);
  } else if (level == "warning") {
    SetLogLevel(LogLevel::kWarning);
  } else if (level == "error") {
    SetLogLevel(LogLevel::kError);
  } else {
    return absl::InvalidArgumentError(absl::StrCat("tessera_join: log_level is \"", level,
                                                   "\", want debug, info, warning or error"));
  }
  return absl::OkStatus();
}

// Ends the jobs that a program left open, while what their threads use is still there.
void CloseAll() {
  if (!CheckProcess("exit").ok()) return;
  std::map<const tessera_job*, std::shared_ptr<tessera_job>> open;
  {
    Handles& handles = OpenHandles();
    absl::MutexLock lock(&handles.mutex);
    open.swap(handles.open);
  }
  for (const auto& [address, handle] : open) {
    handle->job->Close().IgnoreError();
    if (handle->job->has_stalled()) static_cast<void>(handle->job.release());
  }
}

absl::Status Join(const tessera_options* given, tessera_job** handle) {
  constexpr char kFunction[] = "tessera_join";
  if (handle == nullptr) return absl::InvalidArgumentError("tessera_join: job is NULL");
  *handle = nullptr;
  TESSERA_RETURN_IF_ERROR(CheckProcess(kFunction));
  TESSERA_RETURN_IF_ERROR(CheckStruct(kFunction, given));
  // A program that was built for an older library gives a shorter struct: what it lacks has these values.
  tessera_options options = {};
  options.rank = -1;
  std::memcpy(&options, given, given->struct_size);
  if (options.job_file == nullptr) {
    return absl::InvalidArgumentError("tessera_join: job_file is NULL, want the job file's path");
  }
  TESSERA_RETURN_IF_ERROR(SetLevel(options.log_level));
  TESSERA_ASSIGN_OR_RETURN(const absl::Duration timeout,
                           TimeoutOf(kFunction, options.timeout_seconds));
  WorkerOptions worker;
  worker.job_path = options.job_file;
  for (size_t i = 0; options.overrides != nullptr && i < options.override_count; ++i) {
    worker.overrides.emplace_back(options.overrides[i]);
  }
  if (options.coordinator != nullptr) worker.coordinator = options.coordinator;
  worker.rank = static_cast<int>(options.rank);
  const char* const description =
      options.description != nullptr ? options.description : "a program's own model";
  TESSERA_ASSIGN_OR_RETURN(std::unique_ptr<ClientJob> job,
                           ClientJob::Create(std::move(worker), description));
  pid_t nobody = 0;
  if (joined_process.compare_exchange_strong(nobody, getpid())) std::atexit(CloseAll);
  auto opened = std::make_shared<tessera_job>();
  opened->job = std::move(job);
  opened->job->set_timeout(timeout);
  opened->job->Start();
  {
    Handles& handles = OpenHandles();
    absl::MutexLock lock(&handles.mutex);
    handles.open[opened.get()] = opened;
  }
  tessera_verdict verdict = TESSERA_STOP;
  const absl::Status status = AwaitVerdict(opened->job.get(), &verdict);
  // The timeout was joining's alone; tessera_set_timeout is for what follows.
  opened->job->set_timeout(absl::InfiniteDuration());
  if (status.ok() || absl::IsDeadlineExceeded(status)) {
    *handle = opened.get();
    return status;
  }
  Handles& handles = OpenHandles();
  absl::MutexLock lock(&handles.mutex);
  handles.open.erase(opened.get());
  return status;
}

}  // namespace
}  // namespace tessera

using tessera::AnswerThenWait;
using tessera::Called;
using tessera::ClientJob;
using tessera::Guarded;

const char* tessera_last_message(void) { return tessera::last_message.c_str(); }

const char* tessera_version(void) { return tessera::kVersion; }

int tessera_client_api(void) { return TESSERA_CLIENT_API; }

tessera_status tessera_join(const tessera_options* options, tessera_job** job) {
  return Guarded("tessera_join", [&] { return tessera::Join(options, job); });
}

tessera_status tessera_get_info(tessera_job* job, tessera_info* info) {
  constexpr char kFunction[] = "tessera_get_info";
  return Called(kFunction, job, [&](tessera_job* held) -> absl::Status {
    TESSERA_RETURN_IF_ERROR(tessera::CheckStruct(kFunction, info));
    const ClientJob& of = *held->job;
    const tessera::v1::Train& train = of.job().train();
    tessera_info told = {};
    told.rank = static_cast<int64_t>(of.rank());
    told.workers = of.job().cluster().workers();
    told.member = of.member();
    told.seed = of.job().seed();
    told.batch_size = train.batch_size();
    told.steps = train.steps();
    told.epochs = train.epochs();
    told.local_steps = of.recipe().local_steps;
    told.tensor_count = static_cast<int64_t>(of.tensors().size());
    told.parameter_count = static_cast<int64_t>(of.parameter_count());
    told.pushes_gradient = of.pushes_gradient() ? 1 : 0;
    told.has_rows = of.has_rows() ? 1 : 0;
    const tessera::v1::Checkpoint& checkpoint = of.job().checkpoint();
    told.keeps_state = !checkpoint.directory().empty() || !checkpoint.restore().empty() ? 1 : 0;
    told.overlaps = of.recipe().overlaps ? 1 : 0;
    told.has_subnets = of.recipe().subnets ? 1 : 0;
    told.group_count = static_cast<int32_t>(of.groups().size());
    tessera::CopyOut(told, info);
    return absl::OkStatus();
  });
}

tessera_status tessera_tensor_at(tessera_job* job, int64_t index, tessera_tensor* tensor) {
  constexpr char kFunction[] = "tessera_tensor_at";
  return Called(kFunction, job, [&](tessera_job* held) -> absl::Status {
    TESSERA_RETURN_IF_ERROR(tessera::CheckStruct(kFunction, tensor));
    TESSERA_ASSIGN_OR_RETURN(const ClientJob::Tensor* const of,
                             tessera::TensorAt(kFunction, *held->job, index));
    tessera_tensor told = tessera::ToldOf(*of);
    told.dims = of->dims.data();
    told.size = of->size;
    tessera::CopyOut(told, tensor);
    return absl::OkStatus();
  });
}

tessera_status tessera_group_at(tessera_job* job, int64_t index, tessera_group* group) {
  constexpr char kFunction[] = "tessera_group_at";
  return Called(kFunction, job, [&](tessera_job* held) -> absl::Status {
    TESSERA_RETURN_IF_ERROR(tessera::CheckStruct(kFunction, group));
    const std::vector<ClientJob::Group>& groups = held->job->groups();
    if (index < 0 || index >= static_cast<int64_t>(groups.size())) {
      return absl::InvalidArgumentError(
          absl::StrCat(kFunction, ": index is ", index, ", want one in [0, ", groups.size(), ")"));
    }
    const ClientJob::Group& of = groups[static_cast<size_t>(index)];
    tessera_group told = {};
    told.name = of.name.c_str();
    told.units = of.units;
    tessera::CopyOut(told, group);
    return absl::OkStatus();
  });
}

tessera_status tessera_get_round(tessera_job* job, tessera_round* round) {
  constexpr char kFunction[] = "tessera_get_round";
  return Called(kFunction, job, [&](tessera_job* held) -> absl::Status {
    TESSERA_RETURN_IF_ERROR(tessera::CheckStruct(kFunction, round));
    TESSERA_ASSIGN_OR_RETURN(held->cut, held->job->Cut(kFunction));
    tessera_round told = {};
    told.number = held->cut->round;
    told.site = held->cut->site;
    told.sites = held->cut->sites;
    told.whole = held->cut->is_whole ? 1 : 0;
    told.evaluation = held->cut->is_evaluation ? 1 : 0;
    tessera::CopyOut(told, round);
    return absl::OkStatus();
  });
}

tessera_status tessera_tensor_now(tessera_job* job, int64_t index, tessera_tensor* tensor) {
  constexpr char kFunction[] = "tessera_tensor_now";
  return Called(kFunction, job, [&](tessera_job* held) -> absl::Status {
    TESSERA_RETURN_IF_ERROR(tessera::CheckStruct(kFunction, tensor));
    TESSERA_ASSIGN_OR_RETURN(const ClientJob::Tensor* const of,
                             tessera::TensorAt(kFunction, *held->job, index));
    TESSERA_ASSIGN_OR_RETURN(held->cut, held->job->Cut(kFunction));
    held->dims = held->job->DimsIn(*held->cut, static_cast<size_t>(index));
    tessera_tensor told = tessera::ToldOf(*of);
    told.dims = held->dims.data();
    told.size = 1;
    for (const int64_t extent : held->dims) told.size *= extent;
    tessera::CopyOut(told, tensor);
    return absl::OkStatus();
  });
}

tessera_status tessera_subnet(tessera_job* job, const char* group, const uint32_t** indices,
                              size_t* count) {
  constexpr char kFunction[] = "tessera_subnet";
  return Called(kFunction, job, [&](tessera_job* held) -> absl::Status {
    if (group == nullptr || indices == nullptr || count == nullptr) {
      return absl::InvalidArgumentError(
          absl::StrCat(kFunction, ": group, indices or count is NULL"));
    }
    TESSERA_ASSIGN_OR_RETURN(held->cut, held->job->Cut(kFunction));
    std::string names;
    const std::vector<ClientJob::Group>& groups = held->job->groups();
    for (size_t i = 0; i < groups.size(); ++i) {
      if (groups[i].name == group) {
        *indices = held->cut->units[i].data();
        *count = held->cut->units[i].size();
        return absl::OkStatus();
      }
      absl::StrAppend(&names, i > 0 ? ", " : "", groups[i].name);
    }
    return absl::InvalidArgumentError(
        absl::StrCat(kFunction, ": group is \"", group, "\", want one of ", names));
  });
}

tessera_status tessera_set_timeout(tessera_job* job, double seconds) {
  constexpr char kFunction[] = "tessera_set_timeout";
  return Called(kFunction, job, [&](tessera_job* held) -> absl::Status {
    TESSERA_ASSIGN_OR_RETURN(const absl::Duration timeout, tessera::TimeoutOf(kFunction, seconds));
    held->job->set_timeout(timeout);
    return absl::OkStatus();
  });
}

tessera_status tessera_wait(tessera_job* job, tessera_verdict* verdict) {
  constexpr char kFunction[] = "tessera_wait";
  return Called(kFunction, job, [&](tessera_job* held) -> absl::Status {
    if (verdict == nullptr) {
      return absl::InvalidArgumentError("tessera_wait: verdict is NULL");
    }
    return tessera::AwaitVerdict(held->job.get(), verdict);
  });
}

tessera_status tessera_pull(tessera_job* job, float* const* values, size_t count,
                            tessera_verdict* verdict) {
  return AnswerThenWait("tessera_pull", job, verdict, [&](ClientJob* held) {
    return held->Pull(absl::MakeConstSpan(values, values != nullptr ? count : 0));
  });
}

tessera_status tessera_minibatch(tessera_job* job, tessera_minibatch_info* minibatch) {
  constexpr char kFunction[] = "tessera_minibatch";
  return Called(kFunction, job, [&](tessera_job* held) -> absl::Status {
    TESSERA_RETURN_IF_ERROR(tessera::CheckStruct(kFunction, minibatch));
    const ClientJob& of = *held->job;
    if (of.shown() != tessera::Want::kMinibatch) {
      return absl::FailedPreconditionError(
          absl::StrCat(kFunction, ": the last verdict was not TESSERA_TRAIN; it asks for ",
                       tessera::FunctionFor(of.shown())));
    }
    const tessera::CallerExchange& exchange = of.exchange();
    tessera_minibatch_info told = {};
    told.step = exchange.point.step;
    told.epoch = exchange.point.epoch;
    told.rate = exchange.point.rate;
    told.last = exchange.point.last ? 1 : 0;
    told.rows = exchange.rows.empty() ? nullptr : exchange.rows.data();
    told.row_count = exchange.rows.size();
    tessera::CopyOut(told, minibatch);
    return absl::OkStatus();
  });
}

tessera_status tessera_step(tessera_job* job, uint64_t examples, double loss,
                            tessera_verdict* verdict) {
  return AnswerThenWait("tessera_step", job, verdict,
                        [&](ClientJob* held) { return held->Step(examples, loss); });
}

tessera_status tessera_exchange(tessera_job* job, const float* const* gradients,
                                size_t gradient_count, float* const* values, size_t count,
                                tessera_verdict* verdict) {
  return AnswerThenWait("tessera_exchange", job, verdict, [&](ClientJob* held) {
    return held->DoExchange(
        absl::MakeConstSpan(gradients, gradients != nullptr ? gradient_count : 0),
        absl::MakeConstSpan(values, values != nullptr ? count : 0));
  });
}

tessera_status tessera_evaluate(tessera_job* job, const tessera_scores* scores,
                                tessera_verdict* verdict) {
  constexpr char kFunction[] = "tessera_evaluate";
  return AnswerThenWait(kFunction, job, verdict, [&](ClientJob* held) -> absl::Status {
    TESSERA_RETURN_IF_ERROR(tessera::CheckStruct(kFunction, scores));
    tessera_scores given = {};
    std::memcpy(&given, scores, scores->struct_size);
    return held->Evaluate(given.loss, given.score, given.rows);
  });
}

tessera_status tessera_save_state(tessera_job* job, const void* bytes, size_t size,
                                  tessera_verdict* verdict) {
  return AnswerThenWait("tessera_save_state", job, verdict, [&](ClientJob* held) -> absl::Status {
    if (bytes == nullptr && size > 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("tessera_save_state: bytes is NULL, and size is ", size));
    }
    return held->SaveState({static_cast<const char*>(bytes), size});
  });
}

tessera_status tessera_load_state(tessera_job* job, const void** bytes, size_t* size) {
  constexpr char kFunction[] = "tessera_load_state";
  return Called(kFunction, job, [&](tessera_job* held) -> absl::Status {
    if (bytes == nullptr || size == nullptr) {
      return absl::InvalidArgumentError("tessera_load_state: bytes or size is NULL");
    }
    const tessera::Want shown = held->job->shown();
    // Where an evaluation follows at once the next pull is asked for already, and the state has come with the first.
    if (shown == tessera::Want::kNothing || !held->job->has_pulled()) {
      return absl::FailedPreconditionError(
          "tessera_load_state: the state comes with the values; call tessera_pull first");
    }
    const std::string& state = held->job->exchange().loaded_state;
    *bytes = state.data();
    *size = state.size();
    return absl::OkStatus();
  });
}

tessera_status tessera_leave(tessera_job* job) {
  return Guarded("tessera_leave", [&]() -> absl::Status {
    TESSERA_ASSIGN_OR_RETURN(const std::shared_ptr<tessera_job> held,
                             tessera::Find("tessera_leave", job));
    held->job->Leave();
    return absl::OkStatus();
  });
}

tessera_status tessera_close(tessera_job* job) {
  if (job == nullptr) return TESSERA_OK;
  return Guarded("tessera_close", [&]() -> absl::Status {
    TESSERA_ASSIGN_OR_RETURN(const std::shared_ptr<tessera_job> held,
                             tessera::Find("tessera_close", job));
    if (held->in_call.exchange(true)) {
      return absl::FailedPreconditionError(
          "tessera_close: another thread is in a call of this job; tessera_leave ends that call");
    }
    const absl::Status status = held->job->Close();
    // A thread that hangs still uses it.
    if (held->job->has_stalled()) static_cast<void>(held->job.release());
    held->in_call = false;
    tessera::Handles& handles = tessera::OpenHandles();
    absl::MutexLock lock(&handles.mutex);
    handles.open.erase(job);
    return status;
  });
}
