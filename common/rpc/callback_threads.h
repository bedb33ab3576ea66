// How many of gRPC's threads wait for sockets.
//
// gRPC 1.51 runs callbacks on half as many threads as the machine has cores, and at least two. The one that gets an
// event wakes another one to wait in its place, and then turns to the event: on two cores that costs each message a
// wake-up that nobody needs (docs/design/transfer.md). It has no setting for it, so that the surplus threads are kept
// busy: each waits in a callback.
#ifndef TESSERA_COMMON_RPC_CALLBACK_THREADS_H_
#define TESSERA_COMMON_RPC_CALLBACK_THREADS_H_

#include <functional>

namespace tessera {

// How many threads gRPC runs callbacks on where the machine has so many cores.
int GrpcCallbackThreads(int machine_cores);
// How many threads are wanted where this process may use so many cores: half as many, and at least one.
int CallbackThreadsWanted(int cores);

// Leaves gRPC so many threads as this process's cores want, for as long as the process lives. Once per process, before
// its first connection. Callbacks must not wait for others: with one thread nothing else would be heard. Where
// they did not return for seconds, the log says so.
void LimitCallbackThreads();

// Has one of gRPC's threads call `callback`, when its turn comes.
void RunAsCallback(std::function<void()> callback);

}  // namespace tessera

#endif  // TESSERA_COMMON_RPC_CALLBACK_THREADS_H_
