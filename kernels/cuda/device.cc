#include "kernels/cuda/device.h"

#include <cublas_v2.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/log.h"
#include "kernels/cuda/cudnn_library.h"
#include "kernels/cuda/kernel_name.h"
#include "kernels/cuda/machine.h"
#include "kernels/cuda/weight_step.h"

namespace tessera::cuda {
namespace {

// The workspace of products, fixed, so that they choose the same algorithm whatever else goes on: what cuBLAS
// recommends for compute capability 9.0.
constexpr int64_t kWorkspaceBytes = int64_t{32} << 20;
// What this machine has of drivers and GPUs, without making a context on any of them.
Machine ThisMachine() {
  Machine machine;
  cudaRuntimeGetVersion(&machine.runtime);
  if (cudaDriverGetVersion(&machine.driver) != cudaSuccess) machine.driver = 0;
  if (machine.driver == 0) return machine;
  if (const cudaError_t error = cudaGetDeviceCount(&machine.gpus); error != cudaSuccess) {
    machine.failure = cudaGetErrorString(error);
  }
  return machine;
}

// Whether CUDA's own variable has each kernel waited for where it is launched.
bool LaunchBlocks() {
  const char* const value = std::getenv("CUDA_LAUNCH_BLOCKING");
  return value != nullptr && absl::string_view(value) == "1";
}

// The driver's cuTensorMapEncodeTiled; null: this driver has none. The driver's library itself is not linked.
void* FindTensorMapEncoder() {
  constexpr unsigned kSince = 12000;  // CUDA's version that had it first
  void* found = nullptr;
  cudaDriverEntryPointQueryResult result = cudaDriverEntryPointSymbolNotFound;
  const cudaError_t error = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found,
                                                             kSince, cudaEnableDefault, &result);
  cudaGetLastError();  // Whoever lacks it does without.
  return error == cudaSuccess && result == cudaDriverEntryPointSuccess ? found : nullptr;
}

cudaDataType_t TypeOf(Product::Factors factors) {
  return factors == Product::Factors::kBf16 ? CUDA_R_16BF : CUDA_R_32F;
}

}  // namespace

struct Device::State {
  int ordinal = 0;
  std::string name;
  int64_t memory_total = 0;
  int multiprocessors = 0;
  void* tensor_map_encoder = nullptr;  // null: no steps of weights
  cudaStream_t streams[2] = {};
  cublasHandle_t cublas = nullptr;
  void* workspace = nullptr;
  std::unique_ptr<CudnnLibrary> cudnn;
  bool cudnn_sought = false;
  unsigned event_flags = 0;
  std::vector<cudaEvent_t> events;
  std::vector<cudaGraphExec_t> graphs;  // null: dropped
  absl::Status status;
  bool said_not_recorded = false;
  const bool launch_blocks = LaunchBlocks();

  cudaStream_t stream(Stream which) const { return streams[static_cast<int>(which)]; }
  void Note(cudaError_t error, absl::string_view what) {
    if (error == cudaSuccess) return;
    // CUDA keeps the last error until it is asked for it: without this the next call would report it as its own.
    cudaGetLastError();
    status.Update(absl::InternalError(
        absl::StrCat("cuda:", ordinal, ": ", what, ": ", cudaGetErrorString(error))));
  }
  void Note(cublasStatus_t error, absl::string_view what) {
    if (error == CUBLAS_STATUS_SUCCESS) return;
    status.Update(absl::InternalError(
        absl::StrCat("cuda:", ordinal, ": ", what, ": ", cublasGetStatusString(error))));
  }
  void NoteQueued(cudaError_t error) {
    if (error == cudaSuccess) return;
    Note(error, launch_blocks ? "what was queued"
                              : "what was queued (CUDA_LAUNCH_BLOCKING=1 in the environment would "
                                "say which kernel)");
  }
  // Kernels and copies fail after they were queued, so a failure shows at the next wait and names no kernel.
  void WaitForStreams() {
    for (const cudaStream_t each : streams) NoteQueued(cudaStreamSynchronize(each));
  }
  // An earlier failure of what was queued, which CUDA goes on telling.
  cudaError_t Failure() const {
    for (const cudaStream_t each : streams) {
      const cudaError_t error = cudaStreamQuery(each);
      if (error != cudaSuccess && error != cudaErrorNotReady) return error;
    }
    return cudaSuccess;
  }
  // One line is enough: what is wrong is wrong with all of them.
  void SayNotRecorded(absl::string_view why) {
    if (std::exchange(said_not_recorded, true)) return;
    Log(LogLevel::kWarning, absl::StrCat("cuda: steps are queued kernel by kernel device=", ordinal,
                                         " reason=\"", why, "\""));
  }
  // Chooses the GPU, which is the calling thread's own setting.
  void Enter() { Note(cudaSetDevice(ordinal), "choosing the GPU"); }
};

absl::StatusOr<std::unique_ptr<Device>> Device::Open(int ordinal, bool spins) {
  TESSERA_RETURN_IF_ERROR(CheckMachine(ordinal, ThisMachine()));
  auto state = std::make_unique<State>();
  state->ordinal = ordinal;
  // Events without times cost less to record.
  state->event_flags = cudaEventDisableTiming | (spins ? 0 : cudaEventBlockingSync);
  cudaDeviceProp properties;
  if (const cudaError_t error = cudaGetDeviceProperties(&properties, ordinal);
      error != cudaSuccess) {
    return Refused(ordinal, cudaGetErrorString(error));
  }
  state->name = properties.name;
  state->memory_total = static_cast<int64_t>(properties.totalGlobalMem);
  // The number of blocks of persistent kernels.
  state->multiprocessors = properties.multiProcessorCount;
  TESSERA_RETURN_IF_ERROR(CheckGpu(ordinal, {state->name, properties.major, properties.minor}));
  // The object is made here so that its destructor cleans up from now on.
  std::unique_ptr<Device> device(new Device(std::move(state)));
  State& s = *device->state_;
  // The host sleeps while it waits, as other workers may share the cores. This is a wish.
  cudaInitDevice(ordinal, spins ? cudaDeviceScheduleSpin : cudaDeviceScheduleBlockingSync,
                 cudaInitDeviceFlagsAreValid);
  cudaGetLastError();
  s.Enter();
  for (cudaStream_t& stream : s.streams) {
    // Without the default stream's implicit waits for other streams.
    s.Note(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "making a stream");
  }
  if (StepsWeights(properties.major, properties.minor)) {
    s.tensor_map_encoder = FindTensorMapEncoder();
  }
  if (s.status.ok()) s.Note(cublasCreate(&s.cublas), "starting cuBLAS");
  if (s.status.ok()) s.Note(cudaMalloc(&s.workspace, kWorkspaceBytes), "memory for cuBLAS");
  if (s.status.ok()) {
    s.Note(cublasSetStream(s.cublas, s.stream(Stream::kCompute)), "cuBLAS's stream");
    s.Note(cublasSetWorkspace(s.cublas, s.workspace, kWorkspaceBytes), "cuBLAS's workspace");
  }
  if (s.status.ok()) return device;
  size_t free = 0, total = 0;
  std::string more;
  if (cudaMemGetInfo(&free, &total) == cudaSuccess) {
    more = LittleMemory(static_cast<int64_t>(free), static_cast<int64_t>(total));
  }
  return absl::FailedPreconditionError(absl::StrCat("cluster.device: ", s.status.message(), more));
}

Device::Device(std::unique_ptr<State> state) : state_(std::move(state)) {}

Device::~Device() {
  State& s = *state_;
  // The destructor may run on another thread than the others did.
  cudaSetDevice(s.ordinal);
  // cuDNN and cuBLAS have work on the streams and must go before them.
  s.cudnn.reset();
  if (s.cublas != nullptr) cublasDestroy(s.cublas);
  cudaFree(s.workspace);
  for (const cudaGraphExec_t graph : s.graphs) {
    if (graph != nullptr) cudaGraphExecDestroy(graph);
  }
  for (const cudaEvent_t event : s.events) cudaEventDestroy(event);
  for (const cudaStream_t stream : s.streams) {
    if (stream != nullptr) cudaStreamDestroy(stream);
  }
}

const std::string& Device::name() const { return state_->name; }
int64_t Device::memory_total() const { return state_->memory_total; }

int64_t Device::memory_free() {
  state_->Enter();
  size_t free = 0, total = 0;
  state_->Note(cudaMemGetInfo(&free, &total), "asking for its memory");
  return static_cast<int64_t>(free);
}

absl::StatusOr<void*> Device::Allocate(int64_t bytes) {
  state_->Enter();
  void* address = nullptr;
  // What no GPU has may be an invalid value to the driver.
  const cudaError_t error = bytes > state_->memory_total
                                ? cudaErrorMemoryAllocation
                                : cudaMalloc(&address, static_cast<size_t>(bytes));
  if (error == cudaSuccess) return address;
  cudaGetLastError();  // It is dealt with; the next call must not find it.
  const std::string what = absl::StrCat("cuda:", state_->ordinal, ": ");
  if (error != cudaErrorMemoryAllocation) {
    return absl::InternalError(absl::StrCat(what, cudaGetErrorString(error)));
  }
  return absl::ResourceExhaustedError(absl::StrCat(what, "no room for ", bytes, " bytes, ",
                                                   memory_free(), " of ", state_->memory_total,
                                                   " are free"));
}

void Device::Free(void* address) {
  state_->Enter();
  state_->WaitForStreams();  // cudaFree may, and may not.
  state_->Note(cudaFree(address), "giving memory back");
}

absl::StatusOr<void*> Device::AllocateHost(int64_t bytes) {
  state_->Enter();
  void* address = nullptr;
  const cudaError_t error = cudaMallocHost(&address, static_cast<size_t>(bytes));
  if (error == cudaSuccess) {
    // Allocate promises zeros, and so does AllocateHost.
    std::memset(address, 0, static_cast<size_t>(bytes));
    return address;
  }
  cudaGetLastError();
  return absl::ResourceExhaustedError(
      absl::StrCat("cuda:", state_->ordinal, ": no room for ", bytes,
                   " bytes of page-locked host memory: ", cudaGetErrorString(error)));
}

void Device::FreeHost(void* address) {
  state_->Enter();
  state_->WaitForStreams();
  state_->Note(cudaFreeHost(address), "giving host memory back");
}

void Device::Copy(Stream stream, const void* from, int64_t from_stride, int64_t rows, int64_t bytes,
                  void* to, int64_t to_stride) {
  if (rows == 0 || bytes == 0) return;
  state_->Enter();
  if (rows == 1) {
    state_->Note(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyDefault,
                                 state_->stream(stream)),
                 "a copy");
    return;
  }
  state_->Note(
      cudaMemcpy2DAsync(to, static_cast<size_t>(to_stride), from, static_cast<size_t>(from_stride),
                        static_cast<size_t>(bytes), static_cast<size_t>(rows), cudaMemcpyDefault,
                        state_->stream(stream)),
      "a copy of rows");
}

void Device::Zero(Stream stream, void* address, int64_t bytes) {
  if (bytes == 0) return;
  state_->Enter();
  state_->Note(cudaMemsetAsync(address, 0, static_cast<size_t>(bytes), state_->stream(stream)),
               "a memset");
}

// cuBLAS is column-major: it sees each array as its transpose, and computes c^T = op(b)^T op(a)^T.
void Device::Multiply(const Product& p) {
  TESSERA_CHECK(p.rows > 0 && p.columns > 0 && p.terms > 0);
  // cudaSetDevice is the thread's own: calls may come from different threads, one at a time.
  state_->Enter();
  const float alpha = 1;
  const cudaDataType_t type = TypeOf(p.factors);
  // cuBLAS chooses the algorithm by sizes and workspace, which are the same in every run.
  state_->Note(
      cublasGemmEx_64(
          state_->cublas, p.b_transposed ? CUBLAS_OP_T : CUBLAS_OP_N,
          p.a_transposed ? CUBLAS_OP_T : CUBLAS_OP_N, p.columns, p.rows, p.terms, &alpha, p.b, type,
          p.row_of_b(), p.a, type, p.row_of_a(), &p.beta, p.c, CUDA_R_32F, p.row_of_c(),
          p.factors == Product::Factors::kTf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F,
          CUBLAS_GEMM_DEFAULT),
      "a product");
}

bool Device::StepWeight(const WeightStep& step) {
  if (state_->tensor_map_encoder == nullptr || !FitsTma(step)) return false;
  // After a failure nothing is queued any more; the step counts as done, and the status tells the failure.
  if (!Admits(1)) return true;
  state_->Note(static_cast<cudaError_t>(LaunchWeightStep(compute(), state_->tensor_map_encoder,
                                                         state_->multiprocessors, step)),
               "a step of a weight");
  return true;
}

bool Device::HasConvolutions() {
  State& s = *state_;
  // The library is sought once: its absence does not change while the process runs.
  if (std::exchange(s.cudnn_sought, true)) return s.cudnn != nullptr;
  s.Enter();
  auto opened = CudnnLibrary::Open(s.stream(Stream::kCompute));
  cudaGetLastError();  // Whatever it could not do, products can.
  if (!opened.ok()) {
    Log(LogLevel::kInfo, absl::StrCat("cuda: convolutions by cuBLAS device=", s.ordinal,
                                      " reason=\"", opened.status().message(), "\""));
    return false;
  }
  s.cudnn = std::move(*opened);
  Log(LogLevel::kInfo,
      absl::StrCat("cuda: convolutions by ", s.cudnn->name(), " device=", s.ordinal));
  return true;
}

const std::string& Device::convolutions_name() const {
  static const auto* const none = new std::string;
  return state_->cudnn == nullptr ? *none : state_->cudnn->name();
}

absl::optional<int64_t> Device::ConvolutionWorkspace(const ConvolutionPass& pass) {
  if (!HasConvolutions()) return absl::nullopt;
  state_->Enter();
  return state_->cudnn->WorkspaceBytes(pass);
}

bool Device::Convolve(const ConvolutionPass& pass, void* workspace) {
  TESSERA_CHECK(HasConvolutions());
  state_->Enter();
  const absl::Status status = state_->cudnn->Run(pass, workspace);
  if (absl::IsUnimplemented(status)) return false;
  if (!status.ok()) {
    state_->status.Update(absl::InternalError(
        absl::StrCat("cuda:", state_->ordinal, ": a convolution: ", status.message())));
  }
  return true;
}

bool Device::Admits(int64_t blocks) {
  TESSERA_CHECK(blocks > 0 && blocks <= kBlocksMax);
  state_->Enter();
  // After a failure kernels are left out, since their inputs are not what they should be.
  return state_->status.ok();
}

void* Device::compute() { return state_->stream(Stream::kCompute); }

void Device::NoteLaunch(int error, const char* signature) {
  if (error == cudaSuccess) return;
  state_->Note(static_cast<cudaError_t>(error), absl::StrCat("kernel ", KernelName(signature)));
}

Device::Event Device::MakeEvent() {
  state_->Enter();
  cudaEvent_t event = nullptr;
  state_->Note(cudaEventCreateWithFlags(&event, state_->event_flags), "making an event");
  // Events are named by number, as headers must not know CUDA's types.
  state_->events.push_back(event);
  return static_cast<Event>(state_->events.size()) - 1;
}

void Device::Record(Event event, Stream stream) {
  state_->Enter();
  state_->Note(cudaEventRecord(state_->events[event], state_->stream(stream)), "an event");
}

void Device::StreamWait(Stream stream, Event event) {
  state_->Enter();
  state_->Note(cudaStreamWaitEvent(state_->stream(stream), state_->events[event], 0), "a wait");
}

void Device::HostWait(Event event) {
  state_->Enter();
  state_->NoteQueued(cudaEventSynchronize(state_->events[event]));
}

bool Device::BeginRecording() {
  State& s = *state_;
  s.Enter();
  // Nothing that failed before may be part of it, as kernels are left out then.
  if (!s.status.ok()) return false;
  if (s.launch_blocks) {
    s.SayNotRecorded("CUDA_LAUNCH_BLOCKING is 1");
    return false;
  }
  // The mode is the thread's own: other threads may allocate meanwhile, which a global capture would forbid.
  const cudaError_t error =
      cudaStreamBeginCapture(s.stream(Stream::kCompute), cudaStreamCaptureModeThreadLocal);
  if (error == cudaSuccess) return true;
  cudaGetLastError();
  s.SayNotRecorded(cudaGetErrorString(error));
  return false;
}

Device::Graph Device::EndRecording() {
  State& s = *state_;
  s.Enter();
  cudaGraph_t graph = nullptr;
  s.Note(cudaStreamEndCapture(s.stream(Stream::kCompute), &graph), "ending a record");
  cudaGraphExec_t executable = nullptr;
  if (s.status.ok() && graph != nullptr) {
    // Instantiation checks the graph and uploads what it can.
    s.Note(cudaGraphInstantiate(&executable, graph, 0), "a record");
  }
  if (graph != nullptr) cudaGraphDestroy(graph);
  if (!s.status.ok() || executable == nullptr) {
    // Nothing of it was done. If it was the record that was wrong, the same work can be queued piece by
    // piece.
    cudaGetLastError();
    const absl::Status not_recorded = std::exchange(s.status, absl::OkStatus());
    s.NoteQueued(s.Failure());
    if (s.status.ok()) s.SayNotRecorded(not_recorded.message());
    return kNoGraph;
  }
  // A new graph takes the place of one that was dropped.
  const auto place = std::find(s.graphs.begin(), s.graphs.end(), nullptr);
  const auto graph_index = static_cast<Graph>(place - s.graphs.begin());
  if (place == s.graphs.end()) {
    s.graphs.push_back(executable);
  } else {
    *place = executable;
  }
  return graph_index;
}

void Device::Replay(Graph graph) {
  state_->Enter();
  if (!state_->status.ok()) return;
  state_->Note(cudaGraphLaunch(state_->graphs[graph], state_->stream(Stream::kCompute)),
               "a record of kernels");
}

void Device::Drop(Graph graph) {
  state_->Enter();
  // One that is at work is freed when it is done.
  cudaGraphExecDestroy(std::exchange(state_->graphs[graph], nullptr));
}

absl::Status Device::Synchronize() {
  state_->Enter();
  state_->WaitForStreams();
  return TakeStatus();
}

absl::Status Device::TakeStatus() {
  absl::Status status = std::move(state_->status);
  state_->status = absl::OkStatus();
  return status;
}

}  // namespace tessera::cuda
