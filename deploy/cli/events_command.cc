#include "deploy/cli/events_command.h"

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/base/printable.h"
#include "common/rpc/control_channel.h"
#include "common/rpc/status.h"
#include "deploy/cli/failed_call.h"
#include "deploy/cli/status_stream.h"
#include "deploy/cli/watch_end.h"
#include "proto/status.grpc.pb.h"
#include "server/control/status_json.h"

namespace tessera {
namespace {

constexpr std::chrono::seconds kEventsAnswerMax{5};
constexpr absl::Duration kFollowInterval = absl::Milliseconds(500);
constexpr absl::Duration kLookInterval = absl::Milliseconds(50);

// Prints each event once, in order.
class EventPrinter {
 public:
  explicit EventPrinter(const StatusOptions& options)
      : json_(options.json),
        stub_(v1::Status::NewStub(OpenControlChannel(options.address, Role::kViewer))) {}

  // Asks for all that came behind the last one that was printed.
  absl::Status PrintNew() {
    while (true) {
      grpc::ClientContext context;
      context.set_deadline(std::chrono::system_clock::now() + kEventsAnswerMax);
      v1::EventsRequest request;
      request.set_after(last_);
      v1::EventsReply reply;
      const absl::Status asked = FromGrpc(stub_->Events(&context, request, &reply));
      if (!asked.ok()) return asked;
      Print(reply.events());
      if (reply.events().empty() || last_ >= reply.event_count()) return absl::OkStatus();
    }
  }
  template <typename Events>
  void Print(const Events& events) {
    for (const v1::JobEvent& event : events) {
      if (event.number() <= last_) continue;
      last_ = event.number();
      std::printf("%s\n", json_ ? MessageJson(event).c_str() : EventLine(event).c_str());
    }
    std::fflush(stdout);
  }
  uint64_t last() const { return last_; }

 private:
  const bool json_;
  const std::unique_ptr<v1::Status::Stub> stub_;
  uint64_t last_ = 0;  // the number of the last one that was printed
};

// Prints until the job ends. The last ones may be in the last status alone, as the server ends soon after it.
int Follow(const StatusOptions& options, EventPrinter* printer) {
  StatusStream stream(options.address, kFollowInterval, absl::ZeroDuration(),
                      /*recent_history=*/true);
  while (true) {
    const std::optional<absl::Status> ended = stream.ended();
    const std::optional<v1::JobStatus> status = stream.latest();
    if (status.has_value() && status->event_count() > printer->last()) {
      const bool has_all =
          !status->events().empty() && status->events(0).number() <= printer->last() + 1;
      if (!has_all) (void)printer->PrintNew();
      printer->Print(status->events());
    }
    if (ended.has_value()) return ConcludeWatch(options.address, *ended, status);
    if (std::ferror(stdout) != 0) return 0;
    absl::SleepFor(kLookInterval);
  }
}

}  // namespace

std::string EventLine(const v1::JobEvent& event) {
  return absl::StrFormat("%10.1fs  %-17s  %-11s  %s", event.seconds(), ToPrintable(event.kind()),
                         ToPrintable(event.who()), ToPrintable(event.words()));
}

int ShowEvents(const StatusOptions& options) {
  EventPrinter printer(options);
  if (const absl::Status printed = printer.PrintNew(); !printed.ok()) {
    return TellFailedCall(absl::StrCat("no events from ", options.address), printed);
  }
  return options.follow ? Follow(options, &printer) : 0;
}

}  // namespace tessera
