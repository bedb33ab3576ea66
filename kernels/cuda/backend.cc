#include "kernels/cuda/backend.h"

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "kernels/cuda/activation.h"
#include "kernels/cuda/attention.h"
#include "kernels/cuda/batch_norm.h"
#include "kernels/cuda/convolution.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/embedding.h"
#include "kernels/cuda/exchange.h"
#include "kernels/cuda/group_norm.h"
#include "kernels/cuda/linear.h"
#include "kernels/cuda/loss.h"
#include "kernels/cuda/memory.h"
#include "kernels/cuda/pooling.h"
#include "kernels/cuda/response_norm.h"
#include "kernels/cuda/scratch.h"
#include "kernels/cuda/sequence.h"
#include "kernels/cuda/sparse_linear.h"
#include "kernels/cuda/vector.h"

namespace tessera {
namespace {

using Factors = cuda::Product::Factors;

CudaConvolutionOptions Of(const DeviceOptions& options) {
  CudaConvolutionOptions of_convolutions;
  of_convolutions.cudnn = options.cudnn;
  of_convolutions.cudnn_if_slower = options.cudnn_if_slower;
  return of_convolutions;
}

class CudaBackend final : public Backend {
 public:
  CudaBackend(int ordinal, std::unique_ptr<cuda::Device> device, const DeviceOptions& options)
      : ordinal_(ordinal),
        device_(std::move(device)),
        memory_(device_.get()),
        scratch_(&memory_),
        linear_(device_.get(), Factors::kF32),
        linear_tf32_(device_.get(), Factors::kTf32),
        linear_bf16_(device_.get(), Factors::kBf16),
        convolution_(device_.get(), Factors::kF32, &scratch_, &shortcuts_, Of(options)),
        convolution_tf32_(device_.get(), Factors::kTf32, &scratch_, &shortcuts_, Of(options)),
        convolution_bf16_(device_.get(), Factors::kBf16, &scratch_, &shortcuts_, Of(options)),
        pooling_(device_.get()),
        sparse_linear_(device_.get(), &memory_),
        batch_norm_(device_.get(), &scratch_),
        group_norm_(device_.get(), &scratch_),
        response_norm_(device_.get(), &scratch_),
        attention_(device_.get(), &scratch_),
        embedding_(device_.get()),
        activation_(device_.get()),
        loss_(device_.get(), &scratch_),
        vector_(device_.get(), &scratch_, &shortcuts_, options),
        exchange_(device_.get(), &scratch_) {
    // Events are made once, as a step must not allocate.
    for (cuda::Device::Event& each : marked_) each = device_->MakeEvent();
  }

  std::string description() const override {
    // The library's name is there once it has been looked for.
    const std::string& library = device_->convolutions_name();
    return absl::StrCat("cuda:", ordinal_, " (", gpu(), ", ", device_->memory_total() >> 20, " MiB",
                        library.empty() ? "" : ", ", library, ")");
  }
  std::string gpu() const override { return device_->name(); }
  Shortcuts shortcuts() const override { return shortcuts_; }

  Memory& memory() override { return memory_; }
  LinearKernel<float>& linear() override { return linear_; }
  // Every GPU that CheckGpu admits multiplies bf16 and tf32 (compute capability 8.0).
  absl::StatusOr<LinearKernel<Bf16>*> linear_bf16() override { return &linear_bf16_; }
  absl::StatusOr<LinearKernel<float>*> linear_tf32() override { return &linear_tf32_; }
  ConvolutionKernel<float>& convolution() override { return convolution_; }
  absl::StatusOr<ConvolutionKernel<Bf16>*> convolution_bf16() override {
    return &convolution_bf16_;
  }
  absl::StatusOr<ConvolutionKernel<float>*> convolution_tf32() override {
    return &convolution_tf32_;
  }
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

  std::unique_ptr<Sequence> MakeSequence() override {
    return std::make_unique<CudaSequence>(device_.get(), &memory_, &scratch_, &shortcuts_);
  }

  Moment Mark() override {
    // The copy stream waits for the kernels first, so that an event on it stands for the work of both streams.
    memory_.CopiesFollowKernels();
    device_->Record(marked_[++moment_ % kMoments], cuda::Stream::kCopy);
    return moment_;
  }
  absl::Status Wait(Moment moment) override {
    // The event of an older moment has been recorded again since, and would wait for the wrong work.
    TESSERA_CHECK(moment <= moment_ && moment_ - moment < kMoments);
    device_->HostWait(marked_[moment % kMoments]);
    return Failure(device_->TakeStatus());
  }
  absl::Status TakeFailure() override { return Failure(device_->TakeStatus()); }
  absl::Status Finish() override { return Failure(device_->Synchronize()); }

 private:
  absl::Status Failure(absl::Status status) {
    // Scratch that could not be allocated had its kernels left out; this failure is the one that explains the results.
    status.Update(scratch_.TakeStatus());
    status.Update(sparse_linear_.TakeStatus());
    return status;
  }

  const int ordinal_;
  const std::unique_ptr<cuda::Device> device_;
  CudaMemory memory_;
  CudaScratch scratch_;
  Shortcuts shortcuts_;
  CudaLinear<float> linear_;
  CudaLinear<float> linear_tf32_;
  CudaLinear<Bf16> linear_bf16_;
  CudaConvolution<float> convolution_;
  CudaConvolution<float> convolution_tf32_;
  CudaConvolution<Bf16> convolution_bf16_;
  CudaPooling pooling_;
  CudaSparseLinear sparse_linear_;
  CudaBatchNorm batch_norm_;
  CudaGroupNorm group_norm_;
  CudaResponseNorm response_norm_;
  CudaAttention attention_;
  CudaEmbedding embedding_;
  CudaActivation activation_;
  CudaLoss loss_;
  CudaVector vector_;
  CudaExchange exchange_;
  cuda::Device::Event marked_[kMoments];
  Moment moment_ = 0;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Backend>> CreateCudaBackend(int ordinal,
                                                           const DeviceOptions& options) {
  TESSERA_ASSIGN_OR_RETURN(std::unique_ptr<cuda::Device> device,
                           cuda::Device::Open(ordinal, options.spins));
  return std::make_unique<CudaBackend>(ordinal, std::move(device), options);
}

}  // namespace tessera
