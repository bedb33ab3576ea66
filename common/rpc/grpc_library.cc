#include "common/rpc/grpc_library.h"

#include <cstdlib>
#include <optional>
#include <string>

#include <google/protobuf/stubs/logging.h>
#include <grpc/grpc.h>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "common/rpc/callback_threads.h"

namespace tessera {
namespace {

constexpr char kExperiments[] = "GRPC_EXPERIMENTS";

// Starts gRPC with its rule for windows that end at 32 MiB, whatever windows the process has. The
// other one of gRPC 1.51 asks for the memory of a connection that is closed while one of its pings
// is on its way, and ends the process there (docs/design/transfer.md).
void StartGrpc() {
  const char* const given = getenv(kExperiments);
  const std::optional<std::string> before =
      given == nullptr ? std::nullopt : std::make_optional<std::string>(given);
  // A name with a minus before it is turned off, as a later version may have it on by itself.
  setenv(kExperiments, absl::StrCat("-memory_pressure_controller,", before.value_or("")).c_str(),
         /*overwrite=*/1);
  grpc_init();
  // Programs that this one starts have their own windows.
  if (before.has_value()) {
    setenv(kExperiments, before->c_str(), /*overwrite=*/1);
  } else {
    unsetenv(kExperiments);
  }
}

}  // namespace

void PrepareGrpc() {
  static const bool prepared = [] {
    // Whoever sends what is no message is told so; protobuf would say it in the log as well, each time.
    google::protobuf::SetLogHandler(nullptr);
    // gRPC ends its threads when its last object goes, and then waits up to 10 s for the one that
    // polls on behalf of a write that had stalled. Held to the end of the process, it never does.
    StartGrpc();
    // The distribution's Abseil looks for lock cycles at every lock, and gRPC locks a lot: a tenth
    // of a small round trip.
    absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
    LimitCallbackThreads();
    return true;
  }();
  static_cast<void>(prepared);
}

}  // namespace tessera
