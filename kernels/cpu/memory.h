// Host memory, in large pages where there is enough of it.
#ifndef TESSERA_KERNELS_CPU_MEMORY_H_
#define TESSERA_KERNELS_CPU_MEMORY_H_

#include <limits>

#include "kernels/memory.h"

namespace tessera {

class CpuMemory final : public Memory {
 public:
  absl::StatusOr<void*> Allocate(int64_t bytes) override;
  void Free(void* address, int64_t bytes) override;
  void Zero(void* device, int64_t bytes) override;
  void CopyIn(const void* host, int64_t bytes, void* device) override;
  void CopyOut(const void* device, int64_t bytes, void* host) override;
  void CopyRows(const void* from, int64_t from_stride, int64_t rows, int64_t bytes, void* to,
                int64_t to_stride) override;
  absl::StatusOr<void*> AllocateHost(int64_t bytes) override { return Allocate(bytes); }
  void FreeHost(void* address, int64_t bytes) override { Free(address, bytes); }
  void Fetch(const void* device, int64_t bytes, void* host) override {
    CopyOut(device, bytes, host);
  }
  void Send(const void* host, int64_t bytes, void* device) override { CopyIn(host, bytes, device); }
  bool host_addressable() const override { return true; }
  int64_t available() const override { return std::numeric_limits<int64_t>::max(); }
};

}  // namespace tessera

#endif  // TESSERA_KERNELS_CPU_MEMORY_H_
