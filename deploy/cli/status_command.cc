#include "deploy/cli/status_command.h"

#include <grpcpp/grpcpp.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/config/job_check.h"
#include "common/rpc/control_channel.h"
#include "common/rpc/status.h"
#include "deploy/cli/failed_call.h"
#include "deploy/cli/status_stream.h"
#include "deploy/cli/status_view.h"
#include "deploy/cli/terminal.h"
#include "proto/status.grpc.pb.h"

namespace tessera {
namespace {

constexpr std::chrono::seconds kAnswerMax{5};
constexpr absl::Duration kRedrawInterval = absl::Milliseconds(500);

int ShowOnce(const StatusOptions& options) {
  const auto stub = v1::Status::NewStub(
      OpenControlChannel(options.address, Role::kViewer));
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kAnswerMax);
  v1::JobStatus status;
  const grpc::Status result = stub->Get(&context, v1::StatusRequest(), &status);
  if (!result.ok()) {
    return TellFailedCall(absl::StrCat("no status from ", options.address), FromGrpc(result));
  }
  std::printf("%s\n", options.json ? StatusJson(status).c_str()
                                   : StatusText(status, TerminalWidth()).c_str());
  return 0;
}

int Follow(const StatusOptions& options) {
  StatusStream stream(options.address, kRedrawInterval);
  const bool live = isatty(STDOUT_FILENO) && !options.json;
  bool shown = false;
  std::string last;
  int lines = 0;
  while (true) {
    const std::optional<absl::Status> ended = stream.ended();
    const std::optional<v1::JobStatus> status = stream.latest();
    if (status.has_value()) {
      // The cursor stands below the last line.
      const std::string text = options.json ? StatusJson(*status)
                               : live ? StatusText(*status, TerminalWidth(), TerminalHeight() - 1)
                                      : StatusText(*status, TerminalWidth());
      if (text != last) {
        std::fputs(live ? Redraw(text, lines).c_str() : absl::StrCat(text, "\n").c_str(), stdout);
        lines = std::count(text.begin(), text.end(), '\n');
        std::fflush(stdout);
        last = text;
        shown = true;
      }
    }
    if (ended.has_value()) {
      if (shown) return 0;
      return TellFailedCall("no status", *ended);  // It says of whom.
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
  return options.watch ? Follow(options) : ShowOnce(options);
}

}  // namespace tessera
