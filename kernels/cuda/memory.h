// The GPU's memory, and page-locked host memory for copies beside the kernels.
#ifndef TESSERA_KERNELS_CUDA_MEMORY_H_
#define TESSERA_KERNELS_CUDA_MEMORY_H_

#include "kernels/cuda/device.h"
#include "kernels/memory.h"

namespace tessera {

class CudaMemory final : public Memory {
 public:
  // `device` outlives it.
  explicit CudaMemory(cuda::Device* device);
  ~CudaMemory() override;

  absl::StatusOr<void*> Allocate(int64_t bytes) override;
  void Free(void* address, int64_t bytes) override;
  void Zero(void* device, int64_t bytes) override;
  void CopyIn(const void* host, int64_t bytes, void* device) override;
  void CopyOut(const void* device, int64_t bytes, void* host) override;
  void CopyRows(const void* from, int64_t from_stride, int64_t rows, int64_t bytes, void* to,
                int64_t to_stride) override;
  absl::StatusOr<void*> AllocateHost(int64_t bytes) override;
  void FreeHost(void* address, int64_t bytes) override;
  void Fetch(const void* device, int64_t bytes, void* host) override;
  void Send(const void* host, int64_t bytes, void* device) override;
  bool host_addressable() const override { return false; }
  int64_t available() const override { return device_.memory_free(); }

  // The copy stream, from now on, waits for the kernels queued so far, or they for it.
  void CopiesFollowKernels();
  void KernelsFollowCopies();

 private:
  // Pieces of page-locked memory through which bytes of any host memory travel, in turn.
  struct Slot {
    char* bytes = nullptr;
    cuda::Device::Event sent = 0;
  };
  // Places for the lists of two steps on sparse rows, a dozen each, so that the host may be a step ahead.
  static constexpr int kSlots = 32;
  static constexpr int64_t kSlotBytes = int64_t{256} << 10;

  cuda::Device& device_;
  const cuda::Device::Event kernels_;
  const cuda::Device::Event copies_;
  Slot slots_[kSlots];  // empty before the first CopyIn
  int next_slot_ = 0;
};

}  // namespace tessera

#endif  // TESSERA_KERNELS_CUDA_MEMORY_H_
