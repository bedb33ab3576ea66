// A backend that counts its allocations, and refuses them past a limit.
#ifndef TESSERA_TESTS_WORKER_MODEL_COUNTING_BACKEND_H_
#define TESSERA_TESTS_WORKER_MODEL_COUNTING_BACKEND_H_

#include <algorithm>
#include <string>

#include "absl/status/statusor.h"
#include "kernels/backend.h"

namespace tessera {

// Counts what goes through it.
class CountingMemory final : public Memory {
 public:
  explicit CountingMemory(Memory& memory) : memory_(memory) {}
  absl::StatusOr<void*> Allocate(int64_t bytes) override {
    if (!Count(bytes)) return absl::ResourceExhaustedError("counting memory: full");
    return memory_.Allocate(bytes);
  }
  void Free(void* address, int64_t bytes) override {
    held -= bytes;
    memory_.Free(address, bytes);
  }
  void Zero(void* device, int64_t bytes) override { memory_.Zero(device, bytes); }
  void CopyIn(const void* host, int64_t bytes, void* device) override {
    memory_.CopyIn(host, bytes, device);
  }
  void CopyOut(const void* device, int64_t bytes, void* host) override {
    memory_.CopyOut(device, bytes, host);
  }
  void CopyRows(const void* from, int64_t from_stride, int64_t rows, int64_t bytes, void* to,
                int64_t to_stride) override {
    memory_.CopyRows(from, from_stride, rows, bytes, to, to_stride);
  }
  absl::StatusOr<void*> AllocateHost(int64_t bytes) override {
    if (!Count(bytes)) return absl::ResourceExhaustedError("counting memory: full");
    return memory_.AllocateHost(bytes);
  }
  void FreeHost(void* address, int64_t bytes) override {
    held -= bytes;
    memory_.FreeHost(address, bytes);
  }
  void Fetch(const void* device, int64_t bytes, void* host) override {
    memory_.Fetch(device, bytes, host);
  }
  void Send(const void* host, int64_t bytes, void* device) override {
    memory_.Send(host, bytes, device);
  }
  bool host_addressable() const override { return memory_.host_addressable(); }
  int64_t available() const override { return memory_.available(); }

  int64_t calls = 0, held = 0, most = 0;
  int64_t limit = int64_t{1} << 40;

 private:
  bool Count(int64_t bytes) {
    if (held + bytes > limit) return false;
    ++calls;
    held += bytes;
    most = std::max(most, held);
    return true;
  }
  Memory& memory_;
};

class CountingBackend : public Backend {
 public:
  explicit CountingBackend(Backend& backend) : counting(backend.memory()), backend_(backend) {}
  std::string description() const override { return backend_.description(); }
  std::string gpu() const override { return backend_.gpu(); }
  Shortcuts shortcuts() const override { return backend_.shortcuts(); }
  Memory& memory() override { return counting; }
  LinearKernel<float>& linear() override { return backend_.linear(); }
  absl::StatusOr<LinearKernel<Bf16>*> linear_bf16() override { return backend_.linear_bf16(); }
  absl::StatusOr<LinearKernel<float>*> linear_tf32() override { return backend_.linear_tf32(); }
  ConvolutionKernel<float>& convolution() override { return backend_.convolution(); }
  absl::StatusOr<ConvolutionKernel<Bf16>*> convolution_bf16() override {
    return backend_.convolution_bf16();
  }
  absl::StatusOr<ConvolutionKernel<float>*> convolution_tf32() override {
    return backend_.convolution_tf32();
  }
  PoolingKernel& pooling() override { return backend_.pooling(); }
  SparseLinearKernel& sparse_linear() override { return backend_.sparse_linear(); }
  BatchNormKernel& batch_norm() override { return backend_.batch_norm(); }
  GroupNormKernel& group_norm() override { return backend_.group_norm(); }
  ResponseNormKernel& response_norm() override { return backend_.response_norm(); }
  AttentionKernel& attention() override { return backend_.attention(); }
  EmbeddingKernel& embedding() override { return backend_.embedding(); }
  ActivationKernel& activation() override { return backend_.activation(); }
  LossKernel& loss() override { return backend_.loss(); }
  VectorKernel& vector() override { return backend_.vector(); }
  ExchangeKernel& exchange() override { return backend_.exchange(); }
  std::unique_ptr<Sequence> MakeSequence() override { return backend_.MakeSequence(); }
  Moment Mark() override { return backend_.Mark(); }
  absl::Status Wait(Moment moment) override { return backend_.Wait(moment); }
  absl::Status TakeFailure() override { return backend_.TakeFailure(); }
  absl::Status Finish() override { return backend_.Finish(); }

  CountingMemory counting;

 private:
  Backend& backend_;
};

}  // namespace tessera

#endif  // TESSERA_TESTS_WORKER_MODEL_COUNTING_BACKEND_H_
