// The last words of a process that ends by an exception that nobody catches.
#ifndef TESSERA_COMMON_BASE_UNCAUGHT_H_
#define TESSERA_COMMON_BASE_UNCAUGHT_H_

namespace tessera {

// From now on std::terminate logs what was thrown and what to do before it aborts, as `room`, which outlives the
// process's threads. To be called in main.
void LogUncaught(const char* room);

}  // namespace tessera

#endif  // TESSERA_COMMON_BASE_UNCAUGHT_H_
