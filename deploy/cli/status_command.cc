#include "deploy/cli/status_command.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/base/host_port.h"
#include "common/base/printable.h"
#include "common/base/steady_clock.h"
#include "deploy/cli/curves/event_file.h"
#include "deploy/cli/curves/history_source.h"
#include "deploy/cli/failed_call.h"
#include "deploy/cli/events_command.h"
#include "deploy/cli/status_stream.h"
#include "deploy/cli/status_view.h"
#include "deploy/cli/terminal.h"
#include "deploy/cli/watch_end.h"
#include "proto/status.pb.h"
#include "server/control/status_json.h"

namespace tessera {
namespace {

constexpr absl::Duration kRedrawInterval = absl::Milliseconds(500);
// The width of a picture where no terminal bounds it.
constexpr int kLineMax = 1000;

// Appends what is new where `events` are wanted. False: they cannot be written, which was told.
bool WriteEvents(const v1::JobStatus& status, EventWriter* events) {
  const absl::Status written = events == nullptr ? absl::OkStatus() : events->Write(status);
  if (!written.ok()) {
    std::fprintf(stderr, "tessera: %s\n", ToPrintable(written.message()).c_str());
  }
  return written.ok();
}

// People are shown the newest evaluations alone; programs and event files have all.
bool ShowsRecentHistory(const StatusOptions& options) {
  return !options.json && options.tensorboard.empty();
}

// Shows the status as it is now.
int ShowOnce(const StatusOptions& options, EventWriter* events) {
  const absl::StatusOr<v1::JobStatus> status =
      AskForStatus(options.address, ShowsRecentHistory(options));
  if (!status.ok()) {
    return TellFailedCall(absl::StrCat("no status from ", options.address), status.status());
  }
  std::printf("%s\n", options.json ? StatusJson(*status).c_str()
                                   : StatusText(*status, TerminalWidth()).c_str());
  return WriteEvents(*status, events) ? 0 : 1;
}

// How long nothing has come, as far as this process ran: one that was stopped by Ctrl-Z heard nothing either.
class Silence {
 public:
  explicit Silence(const StatusStream& stream) : stream_(stream) {}

  absl::Duration Look() {
    const absl::Time now = SteadyNow();
    const uint64_t received = stream_.received();
    length_ =
        received != received_ ? absl::ZeroDuration() : length_ + std::min(now - looked_, kStepMax);
    received_ = received;
    looked_ = now;
    return length_;
  }

 private:
  static constexpr absl::Duration kStepMax = absl::Seconds(1);

  const StatusStream& stream_;
  absl::Duration length_;
  absl::Time looked_ = SteadyNow();
  uint64_t received_ = 0;
};

// What is drawn on a terminal. The cursor stands below the last line.
std::string Picture(const StatusOptions& options, const std::optional<v1::JobStatus>& status,
                    absl::Duration silence) {
  const int width = TerminalWidth(), height = TerminalHeight() - 1;
  if (silence < options.silence_shown) {
    return status.has_value() ? StatusText(*status, width, height) : "";
  }
  return absl::StrCat(status.has_value() ? StatusText(*status, width, height - 1) : "",
                      SilenceLine(options.address, silence, width));
}

// Shows the status until the job ends, redrawn in place on a terminal.
int Follow(const StatusOptions& options, EventWriter* events) {
  StatusStream stream(options.address, kRedrawInterval, absl::ZeroDuration(),
                      ShowsRecentHistory(options));
  Silence quiet(stream);
  const bool live = CanRedraw() && !options.json;
  bool is_silence_told = false;
  std::string last;
  int lines = 0;
  while (true) {
    const std::optional<absl::Status> ended = stream.ended();
    const absl::Duration silence = ended.has_value() ? absl::ZeroDuration() : quiet.Look();
    const std::optional<v1::JobStatus> status = stream.latest();
    if (status.has_value() && !WriteEvents(*status, events)) return 1;
    std::string text;
    if (live) {
      text = Picture(options, status, silence);
    } else if (status.has_value()) {
      text = options.json ? StatusJson(*status) : StatusText(*status, TerminalWidth());
    }
    if (!text.empty() && text != last) {
      std::fputs(live ? Redraw(text, lines).c_str() : absl::StrCat(text, "\n").c_str(), stdout);
      lines = std::count(text.begin(), text.end(), '\n');
      // Nobody would see what follows; main says why, or nothing to who has had enough.
      if (std::fflush(stdout) != 0) return 0;
      last = text;
    }
    if (ended.has_value()) return ConcludeWatch(options.address, *ended, status);
    if (silence < options.silence_shown) {
      is_silence_told = false;
    } else if (!live && !is_silence_told) {
      is_silence_told = true;
      std::fprintf(stderr, "tessera: %s", SilenceLine(options.address, silence, kLineMax).c_str());
    }
    if (silence >= options.silence_max) {
      std::fprintf(stderr,
                   "tessera: %s has told nothing for %s, and is not waited for any longer; it may "
                   "be stopped, or the network between\n",
                   options.address.c_str(), absl::FormatDuration(options.silence_max).c_str());
      return 1;
    }
    absl::SleepFor(absl::Milliseconds(50));
  }
}

}  // namespace

int ShowStatus(const StatusOptions& options) {
  if (!IsHostPort(options.address)) {
    std::fprintf(stderr, "tessera: ADDRESS: got \"%s\", want HOST:PORT\n", options.address.c_str());
    return 2;
  }
  if (const absl::Status status = UseSecurity(options.security); !status.ok()) {
    std::fprintf(stderr, "tessera: %s\n", std::string(status.message()).c_str());
    return 2;
  }
  if (options.events) return ShowEvents(options);
  std::unique_ptr<EventWriter> events;
  if (!options.tensorboard.empty()) {
    events = std::make_unique<EventWriter>(options.tensorboard);
    if (const absl::Status status = events->Open(); !status.ok()) {
      std::fprintf(stderr, "tessera: %s\n", ToPrintable(status.message()).c_str());
      return 2;
    }
  }
  return options.watch ? Follow(options, events.get()) : ShowOnce(options, events.get());
}

}  // namespace tessera
