#include "server/rpc/status_readers.h"

#include <time.h>

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/log.h"
#include "common/base/steady_clock.h"

namespace tessera {
namespace {

absl::Duration ThreadCpuTime() {
  timespec spent{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &spent);
  return absl::DurationFromTimespec(spent);
}

}  // namespace

StatusReaders::StatusReaders(std::function<v1::JobStatus()> now, StatusLimits limits)
    : limits_(limits),
      shared_(std::move(now), SteadyNow, ThreadCpuTime),
      unread_({limits.unread_bytes_per_host, limits.unread_bytes}),
      pace_({limits.bytes_per_second, limits.bytes_at_once}) {}

// The next status is taken to be as long as the last one.
absl::Duration StatusReaders::Wait(uint64_t host, HistoryWanted history) {
  return pace_.Take(host, last_bytes(history).load(std::memory_order_relaxed), SteadyNow(),
                    kStatusPatience);
}

std::shared_ptr<const StatusText> StatusReaders::Send(uint64_t host,
                                                      const std::shared_ptr<LimitedCall>& call,
                                                      absl::Duration age_max,
                                                      HistoryWanted history) {
  std::shared_ptr<const StatusText> text = shared_.Get(age_max, history);
  last_bytes(history).store(static_cast<int64_t>(text->bytes.size()), std::memory_order_relaxed);
  // Bytes count against the host until it has taken them.
  unread_.Add(host, call, static_cast<int64_t>(text->bytes.size()), text);
  return text;
}

void StatusReaders::TellSlow(absl::string_view peer) {
  const std::optional<uint64_t> held_back = slow_.Pass(SteadyNow());
  if (!held_back.has_value()) return;
  Log(LogLevel::kWarning,
      absl::StrCat("status: a reader that does not read is cut off from=", peer,
                   " unread_bytes=", unread_.bytes(),
                   *held_back > 0 ? absl::StrCat(" not_logged=", *held_back) : ""));
}

}  // namespace tessera
