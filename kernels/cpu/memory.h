// Host memory, in large pages where there is enough of it.
#ifndef TESSERA_KERNELS_CPU_MEMORY_H_
#define TESSERA_KERNELS_CPU_MEMORY_H_

#include "kernels/memory.h"

namespace tessera {

class CpuMemory final : public Memory {
 public:
  absl::StatusOr<void*> Allocate(int64_t bytes) override;
  void Free(void* address, int64_t bytes) override;
  void Zero(void* device, int64_t bytes) override;
  void CopyIn(const void* host, int64_t bytes, void* device) override;
  void CopyOut(const void* device, int64_t bytes, void* host) override;
  bool host_addressable() const override { return true; }
};

}  // namespace tessera

#endif  // TESSERA_KERNELS_CPU_MEMORY_H_
