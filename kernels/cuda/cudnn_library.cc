#include "kernels/cuda/cudnn_library.h"

#include "absl/strings/str_cat.h"

#if __has_include(<cudnn.h>)
#include <cudnn.h>
#include <dlfcn.h>

#include <limits>
#include <utility>
#include <vector>

#include "common/base/check.h"
#include "common/base/log.h"

namespace tessera::cuda {
namespace {

// Every call of cuDNN's that is made here, by its own declaration.
#define TESSERA_CUDNN_CALLS(X)                      \
  X(cudnnConvolutionBackwardData)                   \
  X(cudnnConvolutionBackwardFilter)                 \
  X(cudnnConvolutionForward)                        \
  X(cudnnCreate)                                    \
  X(cudnnCreateConvolutionDescriptor)               \
  X(cudnnCreateFilterDescriptor)                    \
  X(cudnnCreateTensorDescriptor)                    \
  X(cudnnDestroy)                                   \
  X(cudnnDestroyConvolutionDescriptor)              \
  X(cudnnDestroyFilterDescriptor)                   \
  X(cudnnDestroyTensorDescriptor)                   \
  X(cudnnGetConvolutionBackwardDataWorkspaceSize)   \
  X(cudnnGetConvolutionBackwardFilterWorkspaceSize) \
  X(cudnnGetConvolutionForwardWorkspaceSize)        \
  X(cudnnGetCudartVersion)                          \
  X(cudnnGetErrorString)                            \
  X(cudnnGetVersion)                                \
  X(cudnnSetConvolution2dDescriptor)                \
  X(cudnnSetConvolutionGroupCount)                  \
  X(cudnnSetConvolutionMathType)                    \
  X(cudnnSetFilter4dDescriptor)                     \
  X(cudnnSetStream)                                 \
  X(cudnnSetTensor4dDescriptor)

struct Calls {
#define TESSERA_CUDNN_CALL(name) decltype(&::name) name = nullptr;
  TESSERA_CUDNN_CALLS(TESSERA_CUDNN_CALL)
#undef TESSERA_CUDNN_CALL
};

// The major version is part of the name: another one has other functions.
constexpr const char* kFile = "libcudnn.so.9";
// Loaded by the former at the first calls that need them; where it cannot, it aborts the process.
constexpr const char* kParts[] = {"libcudnn_graph.so.9", "libcudnn_ops.so.9", "libcudnn_cnn.so.9"};

// Finds cuDNN's functions: the library is never linked, so that programs run where it is not installed.
absl::StatusOr<Calls> Load() {
  // A cuDNN that the program has already comes first.
  void* library = RTLD_DEFAULT;
  if (dlsym(library, "cudnnCreate") == nullptr) {
    library = dlopen(kFile, RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) return absl::NotFoundError(dlerror());
    for (const char* const part : kParts) {
      if (dlopen(part, RTLD_NOW | RTLD_LOCAL) != nullptr) continue;
      return absl::NotFoundError(absl::StrCat(kFile, " is there, but not ", part, ": ", dlerror()));
    }
  }
  Calls calls;
#define TESSERA_CUDNN_CALL(name)                                                 \
  calls.name = reinterpret_cast<decltype(&::name)>(dlsym(library, #name));       \
  if (calls.name == nullptr) {                                                   \
    return absl::FailedPreconditionError(absl::StrCat(kFile, " has no " #name)); \
  }
  TESSERA_CUDNN_CALLS(TESSERA_CUDNN_CALL)
#undef TESSERA_CUDNN_CALL
  return calls;
}

bool IsSame(const ConvolutionPass& a, const ConvolutionPass& b) {
  // Addresses are not part of a plan.
  const ImageMap &m = a.shape.map, &n = b.shape.map;
  return a.kind == b.kind && a.tf32 == b.tf32 && a.shape.rows == b.shape.rows && m.from == n.from &&
         m.to == n.to && m.window == n.window && m.groups == n.groups;
}

// Whether all extents, and each array's size, are numbers of an int.
// cuDNN's legacy descriptors take sizes as int.
bool IsSmall(const ImagesShape& shape) {
  constexpr int64_t kMax = std::numeric_limits<int32_t>::max();
  const ImageMap& map = shape.map;
  const Window& w = map.window;
  for (const int64_t extent :
       {shape.rows, map.from.channels, map.to.channels, w.height, w.width, w.stride_y, w.stride_x,
        w.padding_y, w.padding_x, w.dilation_y, w.dilation_x, map.groups}) {
    if (extent > kMax) return false;
  }
  return map.from.size() <= kMax / shape.rows && map.to.size() <= kMax / shape.rows &&
         map.weight_columns() <= kMax / map.to.channels;
}

}  // namespace

struct CudnnLibrary::State {
  // How one pass is done. A plan is made at the pass's first use.
  struct Plan {
    ConvolutionPass pass;
    bool refused = false;
    bool was_done = false;  // once
    size_t workspace = 0;
    cudnnTensorDescriptor_t x = nullptr, y = nullptr;
    cudnnFilterDescriptor_t weights = nullptr;
    cudnnConvolutionDescriptor_t convolution = nullptr;
    cudnnConvolutionFwdAlgo_t forward = CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM;
  };
  // The most plans that are kept. A job has tens, for its layers with its numbers of rows.
  static constexpr size_t kPlansMax = 1024;

  Calls calls;
  cudnnHandle_t handle = nullptr;
  std::string name;
  std::vector<Plan> plans;

  // An algorithm may want any amount of workspace; the scratch has room for this much.
  static bool Fits(const Plan& plan) {
    return plan.workspace <= static_cast<size_t>(ConvolutionPass::kWorkspaceBytesMax);
  }
  cudnnStatus_t Describe(Plan* plan) const;
  cudnnStatus_t Choose(Plan* plan) const;
  cudnnStatus_t Queue(const Plan& plan, const ConvolutionPass& pass, void* workspace) const;
  // Takes another algorithm for the pass. False: there is none that fits the workspace that the caller has for it.
  bool ChooseAnother(Plan* plan) const;
  void Drop(Plan* plan) const;
  // Refuses the pass from now on, and logs why, once for each plan.
  void Refuse(Plan* plan, absl::string_view why) const;
  Plan& PlanOf(const ConvolutionPass& pass);
};

cudnnStatus_t CudnnLibrary::State::Describe(Plan* plan) const {
  const ImageMap& map = plan->pass.shape.map;
  const Window& w = map.window;
  const auto n = [](int64_t extent) { return static_cast<int>(extent); };
  const int rows = n(plan->pass.shape.rows);
  cudnnStatus_t status = CUDNN_STATUS_SUCCESS;
  // The first failure is the one to report.
  const auto then = [&](cudnnStatus_t next) {
    if (status == CUDNN_STATUS_SUCCESS) status = next;
    return status == CUDNN_STATUS_SUCCESS;
  };
  if (!then(calls.cudnnCreateTensorDescriptor(&plan->x)) ||
      !then(calls.cudnnCreateTensorDescriptor(&plan->y)) ||
      !then(calls.cudnnCreateFilterDescriptor(&plan->weights)) ||
      !then(calls.cudnnCreateConvolutionDescriptor(&plan->convolution))) {
    return status;
  }
  then(calls.cudnnSetTensor4dDescriptor(plan->x, CUDNN_TENSOR_NHWC, CUDNN_DATA_FLOAT, rows,
                                        n(map.from.channels), n(map.from.height),
                                        n(map.from.width)));
  then(calls.cudnnSetTensor4dDescriptor(plan->y, CUDNN_TENSOR_NHWC, CUDNN_DATA_FLOAT, rows,
                                        n(map.to.channels), n(map.to.height), n(map.to.width)));
  then(calls.cudnnSetFilter4dDescriptor(plan->weights, CUDNN_DATA_FLOAT, CUDNN_TENSOR_NHWC,
                                        n(map.to.channels), n(map.group_channels()), n(w.height),
                                        n(w.width)));
  then(calls.cudnnSetConvolution2dDescriptor(
      plan->convolution, n(w.padding_y), n(w.padding_x), n(w.stride_y), n(w.stride_x),
      n(w.dilation_y), n(w.dilation_x), CUDNN_CROSS_CORRELATION, CUDNN_DATA_FLOAT));
  then(calls.cudnnSetConvolutionGroupCount(plan->convolution, n(map.groups)));
  // cuDNN may round factors of f32 to tf32 by default, for tensor cores. FMA_MATH forbids that.
  then(calls.cudnnSetConvolutionMathType(plan->convolution,
                                         plan->pass.tf32 ? CUDNN_DEFAULT_MATH : CUDNN_FMA_MATH));
  return status;
}

cudnnStatus_t CudnnLibrary::State::Choose(Plan* plan) const {
  switch (plan->pass.kind) {
    case ConvolutionPass::Kind::kForward: {
      cudnnStatus_t status = CUDNN_STATUS_NOT_SUPPORTED;
      for (const cudnnConvolutionFwdAlgo_t algorithm :
           {CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM,
            CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM}) {
        plan->forward = algorithm;
        status = calls.cudnnGetConvolutionForwardWorkspaceSize(handle, plan->x, plan->weights,
                                                               plan->convolution, plan->y,
                                                               algorithm, &plan->workspace);
        if (status == CUDNN_STATUS_SUCCESS && Fits(*plan)) break;
      }
      return status;
    }
    case ConvolutionPass::Kind::kWeightGradient:
      // Deterministic: ALGO_0 and ALGO_3 add atomically.
      return calls.cudnnGetConvolutionBackwardFilterWorkspaceSize(
          handle, plan->x, plan->y, plan->convolution, plan->weights,
          CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1, &plan->workspace);
    case ConvolutionPass::Kind::kInputGradient:
      // Deterministic, unlike ALGO_0.
      return calls.cudnnGetConvolutionBackwardDataWorkspaceSize(
          handle, plan->weights, plan->y, plan->convolution, plan->x,
          CUDNN_CONVOLUTION_BWD_DATA_ALGO_1, &plan->workspace);
  }
  return CUDNN_STATUS_NOT_SUPPORTED;
}

bool CudnnLibrary::State::ChooseAnother(Plan* plan) const {
  constexpr cudnnConvolutionFwdAlgo_t kOther = CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM;
  if (plan->pass.kind != ConvolutionPass::Kind::kForward || plan->forward == kOther) return false;
  size_t workspace = 0;
  const cudnnStatus_t status = calls.cudnnGetConvolutionForwardWorkspaceSize(
      handle, plan->x, plan->weights, plan->convolution, plan->y, kOther, &workspace);
  // The caller's scratch has the workspace of the first choice.
  if (status != CUDNN_STATUS_SUCCESS || workspace > plan->workspace) return false;
  plan->forward = kOther;
  return true;
}

cudnnStatus_t CudnnLibrary::State::Queue(const Plan& plan, const ConvolutionPass& pass,
                                         void* workspace) const {
  const float alpha = 1;
  switch (pass.kind) {
    case ConvolutionPass::Kind::kForward:
      return calls.cudnnConvolutionForward(handle, &alpha, plan.x, pass.a, plan.weights, pass.b,
                                           plan.convolution, plan.forward, workspace,
                                           plan.workspace, &pass.beta, plan.y, pass.c);
    case ConvolutionPass::Kind::kWeightGradient:
      return calls.cudnnConvolutionBackwardFilter(handle, &alpha, plan.x, pass.a, plan.y, pass.b,
                                                  plan.convolution,
                                                  CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1, workspace,
                                                  plan.workspace, &pass.beta, plan.weights, pass.c);
    case ConvolutionPass::Kind::kInputGradient:
      return calls.cudnnConvolutionBackwardData(
          handle, &alpha, plan.weights, pass.b, plan.y, pass.a, plan.convolution,
          CUDNN_CONVOLUTION_BWD_DATA_ALGO_1, workspace, plan.workspace, &pass.beta, plan.x, pass.c);
  }
  return CUDNN_STATUS_NOT_SUPPORTED;
}

void CudnnLibrary::State::Drop(Plan* plan) const {
  if (plan->x != nullptr) calls.cudnnDestroyTensorDescriptor(plan->x);
  if (plan->y != nullptr) calls.cudnnDestroyTensorDescriptor(plan->y);
  if (plan->weights != nullptr) calls.cudnnDestroyFilterDescriptor(plan->weights);
  if (plan->convolution != nullptr) calls.cudnnDestroyConvolutionDescriptor(plan->convolution);
}

CudnnLibrary::State::Plan& CudnnLibrary::State::PlanOf(const ConvolutionPass& pass) {
  for (Plan& plan : plans) {
    if (IsSame(plan.pass, pass)) return plan;
  }
  // All plans are dropped at once. Only a job with very many shapes comes here, and plans are cheap to make.
  if (plans.size() == kPlansMax) {
    for (Plan& plan : plans) Drop(&plan);
    plans.clear();
  }
  // A plan that is refused is kept, too: it answers from then on.
  plans.emplace_back();
  Plan& plan = plans.back();
  plan.pass = pass;
  cudnnStatus_t status = CUDNN_STATUS_NOT_SUPPORTED;
  if (IsSmall(pass.shape)) status = Describe(&plan);
  if (status == CUDNN_STATUS_SUCCESS) status = Choose(&plan);
  // Whatever the reason, it is not asked again.
  if (status != CUDNN_STATUS_SUCCESS) {
    Refuse(&plan, calls.cudnnGetErrorString(status));
  } else if (!Fits(plan)) {
    Refuse(&plan, absl::StrCat("wants ", plan.workspace, " bytes for itself"));
  }
  return plan;
}

void CudnnLibrary::State::Refuse(Plan* plan, absl::string_view why) const {
  plan->refused = true;
  const ConvolutionPass& pass = plan->pass;
  const ImageMap& map = pass.shape.map;
  const Window& w = map.window;
  constexpr const char* kKinds[] = {"forward", "weight_gradient", "input_gradient"};
  Log(LogLevel::kInfo,
      absl::StrCat("cuda: a convolution by cuBLAS pass=", kKinds[static_cast<int>(pass.kind)],
                   " type=", pass.tf32 ? "tf32" : "f32", " rows=", pass.shape.rows,
                   " from=", map.from.channels, "x", map.from.height, "x", map.from.width,
                   " channels=", map.to.channels, " window=", w.height, "x", w.width,
                   " stride=", w.stride_y, "x", w.stride_x, " padding=", w.padding_y, "x",
                   w.padding_x, " dilation=", w.dilation_y, "x", w.dilation_x,
                   " groups=", map.groups, " reason=\"", name, ": ", why, "\""));
}

absl::StatusOr<std::unique_ptr<CudnnLibrary>> CudnnLibrary::Open(void* stream) {
  auto state = std::make_unique<State>();
  TESSERA_ASSIGN_OR_RETURN(state->calls, Load());
  const Calls& calls = state->calls;
  const size_t version = calls.cudnnGetVersion();
  state->name =
      absl::StrCat("cuDNN ", version / 10000, ".", version / 100 % 100, ".", version % 100);
  // cuDNN shares the runtime with this program: another major version of CUDA would fail in its first call.
  if (const size_t cuda = calls.cudnnGetCudartVersion() / 1000; cuda != CUDART_VERSION / 1000) {
    return absl::FailedPreconditionError(absl::StrCat(kFile, ": ", state->name, " is for CUDA ",
                                                      cuda, ", want one for CUDA ",
                                                      CUDART_VERSION / 1000));
  }
  cudnnStatus_t status = calls.cudnnCreate(&state->handle);
  // The object is made here so that its destructor cleans up from now on.
  std::unique_ptr<CudnnLibrary> library(new CudnnLibrary(std::move(state)));
  if (status == CUDNN_STATUS_SUCCESS) {
    // On the stream of all other kernels, so that order needs no events.
    status = calls.cudnnSetStream(library->state_->handle, static_cast<cudaStream_t>(stream));
  }
  if (status != CUDNN_STATUS_SUCCESS) {
    return absl::FailedPreconditionError(
        absl::StrCat(kFile, ": ", library->name(), ": ", calls.cudnnGetErrorString(status)));
  }
  return library;
}

CudnnLibrary::CudnnLibrary(std::unique_ptr<State> state) : state_(std::move(state)) {}

CudnnLibrary::~CudnnLibrary() {
  for (State::Plan& plan : state_->plans) state_->Drop(&plan);
  if (state_->handle != nullptr) state_->calls.cudnnDestroy(state_->handle);
}

const std::string& CudnnLibrary::name() const { return state_->name; }

absl::optional<int64_t> CudnnLibrary::WorkspaceBytes(const ConvolutionPass& pass) {
  const State::Plan& plan = state_->PlanOf(pass);
  if (plan.refused) return absl::nullopt;
  return static_cast<int64_t>(plan.workspace);
}

absl::Status CudnnLibrary::Run(const ConvolutionPass& pass, void* workspace) {
  State::Plan& plan = state_->PlanOf(pass);
  if (plan.refused) return absl::UnimplementedError("a pass that was refused before");
  cudnnStatus_t status = state_->Queue(plan, pass, workspace);
  // A failed execution leaves the context broken, so that no other algorithm could do better.
  const auto has_failed = [&] {
    return CUDNN_STATUS_CATEGORY(status) == CUDNN_STATUS_EXECUTION_FAILED;
  };
  // A size of workspace is no promise that the algorithm can do the pass.
  if (status != CUDNN_STATUS_SUCCESS && !has_failed() && !plan.was_done &&
      state_->ChooseAnother(&plan)) {
    status = state_->Queue(plan, pass, workspace);
  }
  if (status == CUDNN_STATUS_SUCCESS) {
    plan.was_done = true;
    return absl::OkStatus();
  }
  const std::string what =
      absl::StrCat(state_->name, ": ", state_->calls.cudnnGetErrorString(status));
  // Whatever it lacks when it is to do a pass for the first time, products do not.
  if (plan.was_done || has_failed()) return absl::InternalError(what);
  state_->Refuse(&plan, state_->calls.cudnnGetErrorString(status));
  return absl::UnimplementedError(what);
}

}  // namespace tessera::cuda

#else

namespace tessera::cuda {

struct CudnnLibrary::State {
  std::string name;
};

absl::StatusOr<std::unique_ptr<CudnnLibrary>> CudnnLibrary::Open(void*) {
  return absl::NotFoundError("no cudnn.h when this was built");
}
CudnnLibrary::CudnnLibrary(std::unique_ptr<State> state) : state_(std::move(state)) {}
CudnnLibrary::~CudnnLibrary() = default;
const std::string& CudnnLibrary::name() const { return state_->name; }
absl::optional<int64_t> CudnnLibrary::WorkspaceBytes(const ConvolutionPass&) {
  return absl::nullopt;
}
absl::Status CudnnLibrary::Run(const ConvolutionPass&, void*) {
  return absl::UnimplementedError("no cuDNN");
}

}  // namespace tessera::cuda

#endif
