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

  // Queued: `rows` pieces of `bytes` bytes each, from and to device memory with so many bytes
  // between their beginnings. They do not overlap.
  virtual void CopyRows(const void* from, int64_t from_stride, int64_t rows, int64_t bytes,
                        void* to, int64_t to_stride) = 0;
  void Copy(const void* from, int64_t bytes, void* to) { CopyRows(from, 0, 1, bytes, to, 0); }

  // The host's memory, for Fetch and Send: as Allocate and Free.
  virtual absl::StatusOr<void*> AllocateHost(int64_t bytes) = 0;
  virtual void FreeHost(void* address, int64_t bytes) = 0;
  // Copies between the device and AllocateHost's memory beside the kernels. Fetch waits for kernels
  // queued before it, but later ones do not wait for it: they may not write what it reads. Kernels
  // queued after a Send wait for it, but it does not wait for earlier ones, unless Backend::Mark came
  // between: they may not use what it writes. The host's bytes are in use until Finish, or Wait for a
  // later Mark, has returned.
  virtual void Fetch(const void* device, int64_t bytes, void* host) = 0;
  virtual void Send(const void* host, int64_t bytes, void* device) = 0;

  // The host may read and write what Allocate returns, once Backend::Finish has returned.
  virtual bool host_addressable() const = 0;
  // Bytes that Allocate could give out now, for a device with memory of its own; others say the
  // largest number.
  virtual int64_t available() const = 0;
};

// Owns `size` values of T in a device's memory, or in the host's for copies to and from it. The
// Memory must outlive it.
template <typename T>
class Buffer {
 public:
  // Zeroed.
  static absl::StatusOr<Buffer> Create(Memory& memory, int64_t size) {
    absl::StatusOr<void*> address = memory.Allocate(size * static_cast<int64_t>(sizeof(T)));
    if (!address.ok()) return std::move(address).status();
    return Buffer(&memory, static_cast<T*>(*address), size, /*on_host=*/false);
  }
  static absl::StatusOr<Buffer> CreateHost(Memory& memory, int64_t size) {
    absl::StatusOr<void*> address = memory.AllocateHost(size * static_cast<int64_t>(sizeof(T)));
    if (!address.ok()) return std::move(address).status();
    return Buffer(&memory, static_cast<T*>(*address), size, /*on_host=*/true);
  }

  Buffer() = default;
  Buffer(Buffer&& other) noexcept { *this = std::move(other); }
  Buffer& operator=(Buffer&& other) noexcept {
    std::swap(memory_, other.memory_);
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    std::swap(on_host_, other.on_host_);
    return *this;
  }
  ~Buffer() {
    if (data_ == nullptr) return;
    if (on_host_) {
      memory_->FreeHost(data_, bytes());
    } else {
      memory_->Free(data_, bytes());
    }
  }

  T* data() const { return data_; }
  int64_t size() const { return size_; }
  int64_t bytes() const { return size_ * static_cast<int64_t>(sizeof(T)); }

 private:
  Buffer(Memory* memory, T* data, int64_t size, bool on_host)
      : memory_(memory), data_(data), size_(size), on_host_(on_host) {}

  Memory* memory_ = nullptr;
  T* data_ = nullptr;
  int64_t size_ = 0;
  bool on_host_ = false;
};

}  // namespace tessera

#endif  // TESSERA_KERNELS_MEMORY_H_
