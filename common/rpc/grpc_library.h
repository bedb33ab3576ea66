// The gRPC library itself, as every program of Tessera uses it.
#ifndef TESSERA_COMMON_RPC_GRPC_LIBRARY_H_
#define TESSERA_COMMON_RPC_GRPC_LIBRARY_H_

namespace tessera {

// Prepares gRPC, once per process, before anything of it is used: by whatever opens a channel or a server. The windows
// that the process has (windows.h) are decided by then.
//
// gRPC 1.51 has a rule for windows without an end, which may end the process (docs/design/transfer.md), and is told to
// leave it by GRPC_EXPERIMENTS alone, which it reads while it starts. The variable is set for that time; what the user
// has in it comes after ours, and wins. No other thread may read the environment meanwhile.
void PrepareGrpc();

}  // namespace tessera

#endif  // TESSERA_COMMON_RPC_GRPC_LIBRARY_H_
