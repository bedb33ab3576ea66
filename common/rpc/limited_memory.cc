#include "common/rpc/limited_memory.h"

namespace tessera {
namespace {

bool memory_is_limited = false;

}  // namespace

void SetMemoryIsLimited() { memory_is_limited = true; }

bool MemoryIsLimited() { return memory_is_limited; }

}  // namespace tessera
