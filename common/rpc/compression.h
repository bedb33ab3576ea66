// Messages come and go as they are: no connection takes compressed ones.
//
// A megabyte on the wire can be a gigabyte once it is unpacked, and gRPC unpacks before it looks at the limit
// of a message's size. Values are made small by codecs (common/codec), which know how much may come.
#ifndef TESSERA_COMMON_RPC_COMPRESSION_H_
#define TESSERA_COMMON_RPC_COMPRESSION_H_

#include <grpc/compression.h>
#include <grpc/grpc.h>

namespace tessera {

// Calls set(name, value) for the settings of a server or a channel. A call whose messages are compressed then
// ends with UNIMPLEMENTED, and nothing is unpacked.
template <typename Set>
void RefuseCompression(Set set) {
  set(GRPC_ARG_ENABLE_PER_MESSAGE_DECOMPRESSION, 0);
  set(GRPC_COMPRESSION_CHANNEL_ENABLED_ALGORITHMS_BITSET, 1 << GRPC_COMPRESS_NONE);
}

}  // namespace tessera

#endif  // TESSERA_COMMON_RPC_COMPRESSION_H_
