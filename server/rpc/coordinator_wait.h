// A coordinator that was never heard is waited for aloud.
#ifndef TESSERA_SERVER_RPC_COORDINATOR_WAIT_H_
#define TESSERA_SERVER_RPC_COORDINATOR_WAIT_H_

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/base/log.h"
#include "common/base/long_wait.h"
#include "common/base/steady_clock.h"

namespace tessera {

// One thread's.
class CoordinatorWait {
 public:
  // An attempt at the address `at` has ended so: the log says it now and then.
  void Tell(absl::string_view at, const absl::Status& ended) {
    if (!wait_.IsDue(SteadyNow())) return;
    const absl::string_view why =
        ended.ok() ? "it is none, want the address of server 0" : ended.message();
    Log(LogLevel::kInfo,
        absl::StrCat("control: waiting for the coordinator at=", at, " why=\"", why, "\""));
  }

 private:
  LongWait wait_{SteadyNow(), absl::Seconds(10)};
};

}  // namespace tessera

#endif  // TESSERA_SERVER_RPC_COORDINATOR_WAIT_H_
