// A device's array as the host sees it.
#ifndef TESSERA_KERNELS_HOST_VIEW_H_
#define TESSERA_KERNELS_HOST_VIEW_H_

#include <cstdint>
#include <utility>

#include "absl/status/statusor.h"
#include "kernels/memory.h"

namespace tessera {

// The array itself where the host can address it: then Fetch and Send have nothing to do. Else a copy
// of it, in memory that the device reaches at full speed, which the two bring up to date, one way or
// the other. Both are queued, and bound by what Memory says of them.
template <typename T>
class HostView {
 public:
  HostView() = default;
  // A view of `size` values at `device`, which outlive the view. The copy is zeroed.
  static absl::StatusOr<HostView> Create(Memory& memory, T* device, int64_t size) {
    HostView view;
    view.memory_ = &memory;
    view.device_ = device;
    view.size_ = size;
    if (memory.host_addressable()) return view;
    absl::StatusOr<Buffer<T>> copy = Buffer<T>::CreateHost(memory, size);
    if (!copy.ok()) return std::move(copy).status();
    view.copy_ = std::move(*copy);
    view.is_copy_ = true;
    return view;
  }

  T* data() const { return is_copy_ ? copy_.data() : device_; }
  T* device() const { return device_; }
  int64_t size() const { return size_; }

  // Values [begin, begin + count), or all.
  void Fetch(int64_t begin, int64_t count) {
    if (is_copy_) memory_->Fetch(device_ + begin, Bytes(count), copy_.data() + begin);
  }
  void Fetch() { Fetch(0, size_); }
  void Send(int64_t begin, int64_t count) {
    if (is_copy_) memory_->Send(copy_.data() + begin, Bytes(count), device_ + begin);
  }
  void Send() { Send(0, size_); }

 private:
  static int64_t Bytes(int64_t count) { return count * static_cast<int64_t>(sizeof(T)); }

  Memory* memory_ = nullptr;
  T* device_ = nullptr;
  int64_t size_ = 0;
  Buffer<T> copy_;
  bool is_copy_ = false;
};

}  // namespace tessera

#endif  // TESSERA_KERNELS_HOST_VIEW_H_
