#include "kernels/cpu/backend.h"

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/process_limits.h"
#include "dnnl.hpp"
#include "kernels/cpu/activation.h"
#include "kernels/cpu/attention.h"
#include "kernels/cpu/batch_norm.h"
#include "kernels/cpu/convolution.h"
#include "kernels/cpu/convolution_choice.h"
#include "kernels/cpu/embedding.h"
#include "kernels/cpu/exchange.h"
#include "kernels/cpu/group_norm.h"
#include "kernels/cpu/linear.h"
#include "kernels/cpu/loss.h"
#include "kernels/cpu/memory.h"
#include "kernels/cpu/pooling.h"
#include "kernels/cpu/response_norm.h"
#include "kernels/cpu/sparse_linear.h"
#include "kernels/cpu/threads.h"
#include "kernels/cpu/vector.h"

namespace tessera {
namespace {

constexpr int kThreadsMax = 1024;

// Whether oneDNN may use this instruction set here: ONEDNN_MAX_CPU_ISA may forbid what the CPU has.
bool Has(dnnl::cpu_isa isa) {
  const int have = static_cast<int>(dnnl::get_effective_cpu_isa());
  return (have & static_cast<int>(isa)) == static_cast<int>(isa);
}

// The instruction set that oneDNN uses: the CPU's best, or less if DNNL_MAX_CPU_ISA says so.
absl::string_view InstructionSet() {
  using dnnl::cpu_isa;
  if (Has(cpu_isa::avx512_core_amx)) return "avx512_core_amx";
  if (Has(cpu_isa::avx512_core_bf16)) return "avx512_core_bf16";
  if (Has(cpu_isa::avx512_core_vnni)) return "avx512_core_vnni";
  if (Has(cpu_isa::avx512_core)) return "avx512_core";
  if (Has(cpu_isa::avx2)) return "avx2";
  return "sse4.1";
}

// Refuses bf16 where the CPU has no instructions for it: oneDNN would emulate it, or have no such product.
absl::Status HasBf16() {
  if (Has(dnnl::cpu_isa::avx512_core_bf16)) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("train.precision: got \"bf16\", want \"f32\" on this machine; the CPU has ",
                   InstructionSet(), ", bf16 needs avx512_core_bf16"));
}

absl::Status NoTf32() {
  return absl::FailedPreconditionError(
      "train.precision: got \"tf32\", want f32 or bf16 on a CPU; GPUs have tf32");
}

// Refuses a team of another size: its products would have other bits, and those of a smaller one than oneDNN
// expects, other values.
absl::Status CheckTeam(int threads) {
  const absl::Status room = CheckProcessLimits({threads - 1, 0});
  if (!room.ok()) {
    return absl::Status(room.code(),
                        absl::StrCat("cluster.threads: is ", threads, "; ", room.message()));
  }
  const int team = CpuThreads(threads).MeasuredTeam();
  if (team == threads) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("cluster.threads: is ", threads, ", but OpenMP computes with ", team,
                   " here; unset OMP_THREAD_LIMIT, or set cluster.threads to ", team));
}

// A sequence saves nothing on a CPU: a call is the work.
class CpuSequence final : public Sequence {
 public:
  void Run(absl::FunctionRef<void()> queue) override { queue(); }
};

class CpuBackend final : public Backend {
 public:
  explicit CpuBackend(const CpuOptions& options)
      : threads_(options.threads),
        linear_(threads_),
        linear_bf16_(threads_),
        convolution_(threads_, Has(dnnl::cpu_isa::avx512_core)),
        convolution_bf16_(threads_),
        pooling_(threads_),
        sparse_linear_(threads_),
        batch_norm_(threads_),
        group_norm_(threads_),
        response_norm_(threads_),
        attention_(threads_),
        embedding_(threads_),
        activation_(threads_),
        loss_(threads_),
        vector_(threads_) {}

  std::string description() const override {
    return absl::StrCat("cpu (", threads_.count(),
                        threads_.count() == 1 ? " thread, " : " threads, ", InstructionSet(), ")");
  }

  std::string gpu() const override { return ""; }
  Shortcuts shortcuts() const override { return {}; }

  Memory& memory() override { return memory_; }
  LinearKernel<float>& linear() override { return linear_; }
  absl::StatusOr<LinearKernel<Bf16>*> linear_bf16() override {
    TESSERA_RETURN_IF_ERROR(HasBf16());
    return &linear_bf16_;
  }
  absl::StatusOr<LinearKernel<float>*> linear_tf32() override { return NoTf32(); }
  ConvolutionKernel<float>& convolution() override { return convolution_; }
  absl::StatusOr<ConvolutionKernel<Bf16>*> convolution_bf16() override {
    TESSERA_RETURN_IF_ERROR(HasBf16());
    return &convolution_bf16_;
  }
  absl::StatusOr<ConvolutionKernel<float>*> convolution_tf32() override { return NoTf32(); }
  PoolingKernel& pooling() override { return pooling_; }
  SparseLinearKernel& sparse_linear() override { return sparse_linear_; }
  BatchNormKernel& batch_norm() override { return batch_norm_; }
  GroupNormKernel& group_norm() override { return group_norm_; }
  ResponseNormKernel& response_norm() override { return response_norm_; }
  AttentionKernel& attention() override { return attention_; }
  EmbeddingKernel& embedding() override { return embedding_; }
  ActivationKernel& activation() override { return activation_; }
  LossKernel& loss() override { return loss_; }
  VectorKernel& vector() override { return vector_; }
  ExchangeKernel& exchange() override { return exchange_; }

  std::unique_ptr<Sequence> MakeSequence() override { return std::make_unique<CpuSequence>(); }

  // A kernel has finished when its call returns, so every moment has passed and a wait only collects failures.
  Moment Mark() override { return 0; }
  absl::Status Wait(Moment) override { return Finish(); }
  absl::Status TakeFailure() override { return Finish(); }
  absl::Status Finish() override {
    absl::Status status = linear_.TakeStatus();
    status.Update(linear_bf16_.TakeStatus());
    status.Update(convolution_.TakeStatus());
    status.Update(convolution_bf16_.TakeStatus());
    return status;
  }

 private:
  const CpuThreads threads_;
  CpuMemory memory_;
  CpuLinear<float> linear_;
  CpuLinear<Bf16> linear_bf16_;
  CpuConvolutionChoice convolution_;
  CpuConvolution<Bf16> convolution_bf16_;
  CpuPooling pooling_;
  CpuSparseLinear sparse_linear_;
  CpuBatchNorm batch_norm_;
  CpuGroupNorm group_norm_;
  CpuResponseNorm response_norm_;
  CpuAttention attention_;
  CpuEmbedding embedding_;
  CpuActivation activation_;
  CpuLoss loss_;
  CpuVector vector_;
  CpuExchange exchange_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Backend>> CreateCpuBackend(const CpuOptions& options) {
  if (options.threads < 1 || options.threads > kThreadsMax) {
    return absl::InvalidArgumentError(absl::StrCat("cluster.threads: got ", options.threads,
                                                   ", want an integer in [1, ", kThreadsMax, "]"));
  }
  TESSERA_RETURN_IF_ERROR(CheckTeam(options.threads));
  // The mode is set here, as the environment may ask for products in bf16.
  TESSERA_CHECK(dnnl_set_default_fpmath_mode(dnnl_fpmath_mode_strict) == dnnl_success);
  return std::make_unique<CpuBackend>(options);
}

}  // namespace tessera
