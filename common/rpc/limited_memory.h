// Whether this process has a limit on its memory, which has its way of moving parameters spare memory before time.
#ifndef TESSERA_COMMON_RPC_LIMITED_MEMORY_H_
#define TESSERA_COMMON_RPC_LIMITED_MEMORY_H_

namespace tessera {

// Set by LimitMemory (transport.h), once, before the first connection.
void SetMemoryIsLimited();
bool MemoryIsLimited();

}  // namespace tessera

#endif  // TESSERA_COMMON_RPC_LIMITED_MEMORY_H_
