// The last words of a process that ends by an exception that nobody catches, or by a signal for a fault or a limit.
#ifndef TESSERA_COMMON_BASE_UNCAUGHT_H_
#define TESSERA_COMMON_BASE_UNCAUGHT_H_

namespace tessera {

// From now on std::terminate logs what was thrown and what to do before it aborts, as `room`, which outlives the
// process's threads; and SIGSEGV, SIGBUS, SIGFPE, SIGILL and SIGXCPU write a line of that form, without its time,
// before they end the process as they would have. Nobody hears of SIGKILL. To be called in main.
void LogUncaught(const char* room);

}  // namespace tessera

#endif  // TESSERA_COMMON_BASE_UNCAUGHT_H_
