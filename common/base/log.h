// Log lines for people who operate this: `room: event key=value ...` at a state change, on stderr.
//
//   W1120 11:31:09.771502 control: lease expired worker=3 last_heartbeat_ms=15021
//
// What is counted is a metric, not a log line.
#ifndef TESSERA_COMMON_BASE_LOG_H_
#define TESSERA_COMMON_BASE_LOG_H_

#include <cstddef>

#include "absl/strings/string_view.h"

namespace tessera {

enum class LogLevel {
  kDebug,    // for whoever reads the code, or audits a run: one line per exchange at most
  kInfo,     // a state change that belongs to a healthy job: joined, plan, evaluation
  kWarning,  // something was lost and the job goes on: a lease, a refused push
  kError,    // this process ends because of it
};

// Lines below this level are dropped. Default kInfo. Call before threads start.
void SetLogLevel(LogLevel level);
// Whether lines of this level are written, where making one is work.
bool IsLogged(LogLevel level);

// The most bytes of a line, its time and its line break included. Only the beginning of a longer line is written.
constexpr size_t kLogLineBytesMax = 4096;

// Writes one line whole, from any thread, as ToPrintable (printable.h) has it. Never waits for whoever reads stderr:
// lines for which there is no room are lost, and the next one that goes comes behind one that counts them.
void Log(LogLevel level, absl::string_view line);

}  // namespace tessera

#endif  // TESSERA_COMMON_BASE_LOG_H_
