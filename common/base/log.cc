#include "common/base/log.h"

#include <unistd.h>

#include <atomic>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/base/printable.h"
#include "common/base/utf8.h"

namespace tessera {
namespace {

std::atomic<LogLevel> least_level{LogLevel::kInfo};

}  // namespace

void SetLogLevel(LogLevel level) { least_level = level; }

bool IsLogged(LogLevel level) { return level >= least_level; }

void Log(LogLevel level, absl::string_view line) {
  if (!IsLogged(level)) return;
  static constexpr char kLetters[] = {'D', 'I', 'W', 'E'};
  // Texts of users and strangers may hold anything; one event stays one line, of what a terminal prints.
  const std::string text =
      absl::StrCat(absl::string_view(&kLetters[static_cast<int>(level)], 1),
                   absl::FormatTime("%m%d %H:%M:%E6S ", absl::Now(), absl::LocalTimeZone()),
                   ToPrintable(CutText(line, kLogLineBytesMax)), "\n");
  // One write(2) keeps lines of several processes on one terminal apart.
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, text.data(), text.size());
}

}  // namespace tessera
