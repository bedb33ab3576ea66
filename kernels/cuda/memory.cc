#include "kernels/cuda/memory.h"

#include <algorithm>
#include <cstring>

#include "common/base/check.h"

namespace tessera {

using cuda::Stream;

CudaMemory::CudaMemory(cuda::Device* device)
    : device_(*device), kernels_(device->MakeEvent()), copies_(device->MakeEvent()) {
  for (Slot& slot : slots_) slot.sent = device_.MakeEvent();
}

CudaMemory::~CudaMemory() {
  // Copies may still read or write the slots.
  (void)device_.Synchronize();
  for (const Slot& slot : slots_) {
    if (slot.bytes != nullptr) device_.FreeHost(slot.bytes);
  }
}

absl::StatusOr<void*> CudaMemory::Allocate(int64_t bytes) {
  TESSERA_CHECK(bytes >= 0);
  if (bytes == 0) return nullptr;
  TESSERA_ASSIGN_OR_RETURN(void* const address, device_.Allocate(bytes));
  device_.Zero(Stream::kCompute, address, bytes);
  CopiesFollowKernels();  // A Send into it must not come before the zeros.
  return address;
}

void CudaMemory::Free(void* address, int64_t) {
  if (address != nullptr) device_.Free(address);
}

void CudaMemory::Zero(void* device, int64_t bytes) {
  device_.Zero(Stream::kCompute, device, bytes);
}

void CudaMemory::CopyIn(const void* host, int64_t bytes, void* device) {
  const char* from = static_cast<const char*>(host);
  char* to = static_cast<char*>(device);
  // Page-locked slots take turns, so that the host fills one while the GPU copies from another.
  while (bytes > 0) {
    Slot& slot = slots_[next_slot_];
    next_slot_ = (next_slot_ + 1) % kSlots;
    // Slots are made at first use, as not every job copies from ordinary memory.
    if (slot.bytes == nullptr) {
      const absl::StatusOr<void*> made = device_.AllocateHost(kSlotBytes);
      if (!made.ok()) {
        // The runtime takes care of ordinary memory, more slowly.
        device_.Copy(Stream::kCompute, from, 0, 1, bytes, to, 0);
        device_.Record(slot.sent, Stream::kCompute);
        return device_.HostWait(slot.sent);
      }
      slot.bytes = static_cast<char*>(*made);
    }
    // The slot's last copy must have left it.
    device_.HostWait(slot.sent);
    const int64_t piece = std::min(bytes, kSlotBytes);
    std::memcpy(slot.bytes, from, static_cast<size_t>(piece));
    device_.Copy(Stream::kCompute, slot.bytes, 0, 1, piece, to, 0);
    device_.Record(slot.sent, Stream::kCompute);
    from += piece;
    to += piece;
    bytes -= piece;
  }
}

void CudaMemory::CopyOut(const void* device, int64_t bytes, void* host) {
  // The host waits for this copy, which the compute stream orders behind the kernels before it.
  if (bytes == 0) return;
  device_.Copy(Stream::kCompute, device, 0, 1, bytes, host, 0);
  device_.Record(kernels_, Stream::kCompute);
  device_.HostWait(kernels_);
}

void CudaMemory::CopyRows(const void* from, int64_t from_stride, int64_t rows, int64_t bytes,
                          void* to, int64_t to_stride) {
  device_.Copy(Stream::kCompute, from, from_stride, rows, bytes, to, to_stride);
}

absl::StatusOr<void*> CudaMemory::AllocateHost(int64_t bytes) {
  TESSERA_CHECK(bytes >= 0);
  if (bytes == 0) return nullptr;
  return device_.AllocateHost(bytes);
}

void CudaMemory::FreeHost(void* address, int64_t) {
  if (address != nullptr) device_.FreeHost(address);
}

void CudaMemory::CopiesFollowKernels() {
  device_.Record(kernels_, Stream::kCompute);
  device_.StreamWait(Stream::kCopy, kernels_);
}

void CudaMemory::KernelsFollowCopies() {
  device_.Record(copies_, Stream::kCopy);
  device_.StreamWait(Stream::kCompute, copies_);
}

void CudaMemory::Fetch(const void* device, int64_t bytes, void* host) {
  // A fetch runs beside later kernels, on the copy stream, but sees the result of those queued before it.
  if (bytes == 0) return;
  CopiesFollowKernels();
  device_.Copy(Stream::kCopy, device, 0, 1, bytes, host, 0);
}

void CudaMemory::Send(const void* host, int64_t bytes, void* device) {
  if (bytes == 0) return;
  // Kernels queued from now on see what was sent.
  // A Send does not wait for kernels: Backend::Mark says when it must (kernels/memory.h).
  device_.Copy(Stream::kCopy, host, 0, 1, bytes, device, 0);
  KernelsFollowCopies();
}

}  // namespace tessera
