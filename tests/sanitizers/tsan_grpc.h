// What tsan_grpc.cc says of gRPC to ThreadSanitizer, for the mutexes of tsan.cc.
#ifndef TESSERA_TESTS_SANITIZERS_TSAN_GRPC_H_
#define TESSERA_TESTS_SANITIZERS_TSAN_GRPC_H_

namespace tessera {

// All that this thread did happens before what others do after their next AfterGrpc.
void BeforeGrpc();
void AfterGrpc();

// Whether the code at this address, the one that a function returns to, is gRPC's.
bool IsGrpc(const void* code);

}  // namespace tessera

#endif  // TESSERA_TESTS_SANITIZERS_TSAN_GRPC_H_
