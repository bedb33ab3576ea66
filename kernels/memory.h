// A device's memory, and buffers that own pieces of it.
#ifndef TESSERA_KERNELS_MEMORY_H_
#define TESSERA_KERNELS_MEMORY_H_

#include <cstdint>
#include <utility>

#include "absl/status/statusor.h"

namespace tessera {

// Addresses from here mean something to the same backend's kernels only, unless the host can
// address them.
class Memory {
 public:
  virtual ~Memory() = default;

  // Zeroed bytes, aligned to 64; null for 0 bytes. kResourceExhausted when the device has no room.
  virtual absl::StatusOr<void*> Allocate(int64_t bytes) = 0;
  // `address` and `bytes` as Allocate had them. Waits for kernels that still use them.
  virtual void Free(void* address, int64_t bytes) = 0;

  // Queued behind earlier kernels, like them.
  virtual void Zero(void* device, int64_t bytes) = 0;
  // Queued behind earlier kernels. The host's bytes may be reused on return.
  virtual void CopyIn(const void* host, int64_t bytes, void* device) = 0;
  // Waits for earlier kernels; the host's bytes are there on return.
  virtual void CopyOut(const void* device, int64_t bytes, void* host) = 0;

  // The host may read and write what Allocate returns, once Backend::Finish has returned.
  virtual bool host_addressable() const = 0;
};

// Owns `size` values of T in a device's memory, which must outlive it.
template <typename T>
class Buffer {
 public:
  // Zeroed.
  static absl::StatusOr<Buffer> Create(Memory& memory, int64_t size) {
    absl::StatusOr<void*> address = memory.Allocate(size * static_cast<int64_t>(sizeof(T)));
    if (!address.ok()) return std::move(address).status();
    return Buffer(&memory, static_cast<T*>(*address), size);
  }

  Buffer() = default;
  Buffer(Buffer&& other) noexcept { *this = std::move(other); }
  Buffer& operator=(Buffer&& other) noexcept {
    std::swap(memory_, other.memory_);
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }
  ~Buffer() {
    if (data_ != nullptr) memory_->Free(data_, bytes());
  }

  T* data() const { return data_; }
  int64_t size() const { return size_; }
  int64_t bytes() const { return size_ * static_cast<int64_t>(sizeof(T)); }

 private:
  Buffer(Memory* memory, T* data, int64_t size) : memory_(memory), data_(data), size_(size) {}

  Memory* memory_ = nullptr;
  T* data_ = nullptr;
  int64_t size_ = 0;
};

}  // namespace tessera

#endif  // TESSERA_KERNELS_MEMORY_H_
