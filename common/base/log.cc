#include "common/base/log.h"

#include <limits.h>
#include <poll.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <string>

#include "absl/base/attributes.h"
#include "absl/base/const_init.h"
#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/base/printable.h"
#include "common/base/utf8.h"

namespace tessera {
namespace {

// A pipe that has any room has room for a whole line.
static_assert(kLogLineBytesMax <= PIPE_BUF);

std::atomic<LogLevel> least_level{LogLevel::kInfo};

// Between looking whether a line fits and writing it no other thread may take the room.
ABSL_CONST_INIT absl::Mutex mutex(absl::kConstInit);
uint64_t lost ABSL_GUARDED_BY(mutex) = 0;  // lines for which there was no room

// The line as it is written: level, time of day, text, and a line break. The time of day is for people who compare
// logs of several machines.
std::string WholeLine(LogLevel level, absl::string_view line) {
  static constexpr char kLetters[] = {'D', 'I', 'W', 'E'};
  const std::string head =
      absl::StrCat(absl::string_view(&kLetters[static_cast<int>(level)], 1),
                   absl::FormatTime("%m%d %H:%M:%E6S ", absl::Now(), absl::LocalTimeZone()));
  // Texts of users and strangers may hold anything; one event stays one line, of what a terminal prints.
  const std::string text = ToPrintable(CutText(line, kLogLineBytesMax));
  const size_t text_bytes_max = kLogLineBytesMax - head.size() - sizeof("...\n") + 1;
  return absl::StrCat(head, CutText(text, text_bytes_max), "\n");
}

// Writes a line. False: there is no room, as in a pipe or a terminal whose reader stands still. Callers hold locks
// that the job needs, and may not wait for that.
bool Write(const std::string& line) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
  pollfd out = {STDERR_FILENO, POLLOUT, 0};
  if (poll(&out, 1, /*timeout=*/0) == 0) return false;
  // One write(2) keeps lines of several processes on one terminal apart. Where stderr is closed it fails at once.
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, line.data(), line.size());
  return true;
}

}  // namespace

void SetLogLevel(LogLevel level) { least_level = level; }

bool IsLogged(LogLevel level) { return level >= least_level; }

void Log(LogLevel level, absl::string_view line) {
  if (!IsLogged(level)) return;
  const std::string whole = WholeLine(level, line);
  absl::MutexLock lock(&mutex);
  if (lost > 0) {
    const std::string note = WholeLine(
        LogLevel::kWarning, absl::StrCat("log: lines lost count=", lost,
                                         " why=\"nobody read stderr, and there was no room\""));
    if (Write(note)) lost = 0;
  }
  // Lines are lost from the first one that did not fit until the note about them does, so that the order stays true.
  if (lost > 0 || !Write(whole)) ++lost;
}

}  // namespace tessera
