#include "common/rpc/callback_threads.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <memory>
#include <utility>

#include <grpc/support/cpu.h>
#include <grpcpp/client_context.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/support/byte_buffer.h>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/base/log.h"

namespace tessera {
namespace {

// How often a callback is made, as gRPC's threads pause for 100 ms after each second without one, all at once
// where there is only one thread.
constexpr absl::Duration kBeat = absl::Milliseconds(500);
// The log tells when so many heartbeats in a row had no answer.
constexpr int kSilentBeats = 6;

// The cores that this process may run on, which may be fewer than the machine has.
int CoresOfProcess() {
  cpu_set_t cores;
  if (sched_getaffinity(0, sizeof(cores), &cores) != 0) {
    return static_cast<int>(gpr_cpu_num_cores());
  }
  return std::max(1, CPU_COUNT(&cores));
}

// Runs in one of the surplus threads: it hears whether the others do their work.
void Watch() {
  // The flag outlives everybody who might still look at it.
  static std::atomic<bool>* const is_answered = new std::atomic<bool>(true);
  int silent = 0;
  while (true) {
    absl::SleepFor(kBeat);
    if (!*is_answered) {
      if (++silent == kSilentBeats) {
        Log(LogLevel::kWarning, absl::StrCat("rpc: a callback has not returned for ms=",
                                             absl::ToInt64Milliseconds(silent * kBeat),
                                             ", nothing is heard meanwhile"));
      }
      continue;
    }
    if (silent >= kSilentBeats) Log(LogLevel::kInfo, "rpc: callbacks return again");
    silent = 0;
    *is_answered = false;
    RunAsCallback([] { *is_answered = true; });
  }
}

[[noreturn]] void Wait() {
  while (true) absl::SleepFor(absl::InfiniteDuration());
}

}  // namespace

int GrpcCallbackThreads(int machine_cores) { return std::clamp(machine_cores / 2, 2, 16); }

int CallbackThreadsWanted(int cores) { return std::max(1, cores / 2); }

void RunAsCallback(std::function<void()> callback) {
  // A channel without credentials fails every call; it holds gRPC's threads for as long as it lives, which is forever.
  static grpc::GenericStub* const nowhere =
      new grpc::GenericStub(grpc::CreateCustomChannel("", nullptr, grpc::ChannelArguments()));
  struct Call {
    grpc::ClientContext context;
    grpc::Slice nothing;
    grpc::ByteBuffer request{&nothing, 1};  // One without a slice is no message.
    grpc::ByteBuffer reply;
  };
  auto call = std::make_shared<Call>();
  // The call is unary, as the end of a stream may come on other threads.
  nowhere->UnaryCall(&call->context, "/tessera/Callback", {}, &call->request, &call->reply,
                     [call, callback = std::move(callback)](const grpc::Status&) { callback(); });
}

void LimitCallbackThreads() {
  const char* const text = getenv("TESSERA_CALLBACK_THREADS");  // For measurements.
  int asked = 0;
  const bool is_asked = text != nullptr && absl::SimpleAtoi(text, &asked) && asked > 0;
  const int wanted = is_asked ? asked : CallbackThreadsWanted(CoresOfProcess());
  // gRPC makes half as many callback threads as the machine has cores; those beyond what this process can use are put
  // to sleep for good, as they would take turns on the same cores.
  const int surplus = GrpcCallbackThreads(static_cast<int>(gpr_cpu_num_cores())) - wanted;
  for (int i = 0; i < surplus; ++i) RunAsCallback(i == 0 ? Watch : Wait);
}

}  // namespace tessera
