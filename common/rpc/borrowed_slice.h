// Memory that gRPC sends from where it lies.
#ifndef TESSERA_COMMON_RPC_BORROWED_SLICE_H_
#define TESSERA_COMMON_RPC_BORROWED_SLICE_H_

#include <cstdint>
#include <memory>

#include <grpcpp/support/slice.h>

namespace tessera {

// A slice of `size` bytes at `data`, not copied. `owner` is dropped, on whatever thread, once gRPC
// no longer needs the bytes; until then they must stay as they are.
grpc::Slice BorrowSlice(const void* data, int64_t size, std::shared_ptr<const void> owner);

}  // namespace tessera

#endif  // TESSERA_COMMON_RPC_BORROWED_SLICE_H_
