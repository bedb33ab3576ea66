// A file descriptor that is closed with its owner.
#ifndef TESSERA_COMMON_RPC_SHARED_MEMORY_OWNED_DESCRIPTOR_H_
#define TESSERA_COMMON_RPC_SHARED_MEMORY_OWNED_DESCRIPTOR_H_

#include <unistd.h>

#include <utility>

namespace tessera {

// Movable, not copied.
class OwnedDescriptor {
 public:
  OwnedDescriptor() = default;
  explicit OwnedDescriptor(int descriptor) : descriptor_(descriptor) {}
  OwnedDescriptor(OwnedDescriptor&& other) : descriptor_(other.Release()) {}
  OwnedDescriptor& operator=(OwnedDescriptor&& other) {
    if (this != &other) Reset(other.Release());
    return *this;
  }
  ~OwnedDescriptor() { Reset(); }

  // -1: there is none.
  int get() const { return descriptor_; }
  bool is_open() const { return descriptor_ >= 0; }
  int Release() { return std::exchange(descriptor_, -1); }
  void Reset(int descriptor = -1) {
    if (descriptor_ >= 0) close(descriptor_);
    descriptor_ = descriptor;
  }

 private:
  int descriptor_ = -1;
};

}  // namespace tessera

#endif  // TESSERA_COMMON_RPC_SHARED_MEMORY_OWNED_DESCRIPTOR_H_
