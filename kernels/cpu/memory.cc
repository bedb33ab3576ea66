#include "kernels/cpu/memory.h"

#include <sys/mman.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"

namespace tessera {
namespace {

constexpr size_t kLargePage = size_t{2} << 20;
constexpr size_t kPage = 4096;
constexpr size_t kCacheLine = 64;

// Whether a buffer comes from the system and goes back to it, so that one that is gone leaves no hole.
bool IsLarge(int64_t bytes) { return static_cast<size_t>(bytes) >= 2 * kLargePage; }

size_t WholePages(int64_t bytes) {
  return (static_cast<size_t>(bytes) + kPage - 1) / kPage * kPage;
}

// Maps memory in large pages: a weight matrix crosses a 4 KiB page with almost every row, and a large page holds
// hundreds. Null: no room.
void* MapLarge(int64_t bytes) {
  const size_t size = WholePages(bytes);
  // One large page more than is asked for, so that the beginning can be rounded up to a large page.
  void* const mapped =
      mmap(nullptr, size + kLargePage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) return nullptr;
  // What begins on a large page is kept.
  char* const begin = static_cast<char*>(mapped);
  const size_t before = (kLargePage - reinterpret_cast<uintptr_t>(begin) % kLargePage) % kLargePage;
  if (before > 0) munmap(begin, before);
  char* const kept = begin + before;
  munmap(kept + size, kLargePage - before);
  // The call is a wish: without large pages memory is slower, not wrong.
  madvise(kept, size, MADV_HUGEPAGE);
  // The memory is zero, but its pages are not there yet, and no step should wait for them.
  std::memset(kept, 0, size);
  return kept;
}

void* AllocateSmall(int64_t bytes) {
  const size_t size = (static_cast<size_t>(bytes) + kCacheLine - 1) / kCacheLine * kCacheLine;
  // aligned_alloc takes whole multiples of the alignment only.
  void* const address = std::aligned_alloc(kCacheLine, size);
  if (address != nullptr) std::memset(address, 0, size);
  return address;
}

}  // namespace

absl::StatusOr<void*> CpuMemory::Allocate(int64_t bytes) {
  TESSERA_CHECK(bytes >= 0);
  if (bytes == 0) return nullptr;
  void* const address = IsLarge(bytes) ? MapLarge(bytes) : AllocateSmall(bytes);
  if (address != nullptr) return address;
  return absl::ResourceExhaustedError(absl::StrCat("cpu memory: no room for ", bytes, " bytes"));
}

void CpuMemory::Free(void* address, int64_t bytes) {
  // The size alone decides which of the two allocated it, as in Allocate.
  if (IsLarge(bytes)) {
    munmap(address, WholePages(bytes));
  } else {
    std::free(address);
  }
}

void CpuMemory::Zero(void* device, int64_t bytes) {
  if (bytes > 0) std::memset(device, 0, bytes);
}

void CpuMemory::CopyRows(const void* from, int64_t from_stride, int64_t rows, int64_t bytes,
                         void* to, int64_t to_stride) {
  for (int64_t row = 0; bytes > 0 && row < rows; ++row) {
    std::memcpy(static_cast<char*>(to) + row * to_stride,
                static_cast<const char*>(from) + row * from_stride, bytes);
  }
}

void CpuMemory::CopyIn(const void* host, int64_t bytes, void* device) {
  if (bytes > 0) std::memcpy(device, host, bytes);
}

void CpuMemory::CopyOut(const void* device, int64_t bytes, void* host) {
  if (bytes > 0) std::memcpy(host, device, bytes);
}

}  // namespace tessera
