#include "kernels/cpu/memory.h"

#include <sys/mman.h>

#include <cstdlib>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"

namespace tessera {
namespace {

constexpr size_t kLargePage = size_t{2} << 20;
constexpr size_t kCacheLine = 64;

}  // namespace

absl::StatusOr<void*> CpuMemory::Allocate(int64_t bytes) {
  TESSERA_CHECK(bytes >= 0);
  if (bytes == 0) return nullptr;
  // A weight matrix crosses a 4 KiB page with almost every row; a large page holds hundreds.
  const size_t alignment = static_cast<size_t>(bytes) >= 2 * kLargePage ? kLargePage : kCacheLine;
  const size_t size = (static_cast<size_t>(bytes) + alignment - 1) / alignment * alignment;
  void* address = std::aligned_alloc(alignment, size);
  if (address == nullptr) {
    return absl::ResourceExhaustedError(absl::StrCat("cpu memory: no room for ", bytes, " bytes"));
  }
  // Best effort: without large pages it is slower, not wrong.
  if (alignment == kLargePage) madvise(address, size, MADV_HUGEPAGE);
  std::memset(address, 0, size);
  return address;
}

void CpuMemory::Free(void* address, int64_t) { std::free(address); }

void CpuMemory::Zero(void* device, int64_t bytes) {
  if (bytes > 0) std::memset(device, 0, bytes);
}

void CpuMemory::CopyIn(const void* host, int64_t bytes, void* device) {
  if (bytes > 0) std::memcpy(device, host, bytes);
}

void CpuMemory::CopyOut(const void* device, int64_t bytes, void* host) {
  if (bytes > 0) std::memcpy(host, device, bytes);
}

}  // namespace tessera
