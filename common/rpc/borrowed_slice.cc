#include "common/rpc/borrowed_slice.h"

#include <utility>

namespace tessera {

grpc::Slice BorrowSlice(const void* data, int64_t size, std::shared_ptr<const void> owner) {
  using Owner = std::shared_ptr<const void>;
  // gRPC drops its last reference on any thread, and with it the owner's bytes.
  const auto drop = [](void* held) { delete static_cast<Owner*>(held); };
  return grpc::Slice(const_cast<void*>(data), static_cast<size_t>(size), drop,
                     new Owner(std::move(owner)));
}

}  // namespace tessera
