// Says in the log for whom a job waits that does not train, when that changes.
#ifndef TESSERA_SERVER_RPC_WAITING_LOG_H_
#define TESSERA_SERVER_RPC_WAITING_LOG_H_

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "common/base/log.h"
#include "server/control/coordinator.h"

namespace tessera {

class WaitingLog {
 public:
  // Looks at a job, as often as leases are looked at.
  void See(const Coordinator& coordinator, absl::Time now) {
    std::string names;
    if (coordinator.StateWord() == "waiting") names = absl::StrJoin(coordinator.WaitingFor(), ", ");
    if (names != seen_) {
      seen_ = std::move(names);
      since_ = now;
    }
    if (seen_ == told_ || (!seen_.empty() && now - since_ < kTellAfter)) return;
    told_ = seen_;
    if (!told_.empty()) Log(LogLevel::kInfo, absl::StrCat("control: waiting for ", told_));
  }

 private:
  // Names that stand for less are no news.
  static constexpr absl::Duration kTellAfter = absl::Seconds(2);

  std::string seen_, told_;
  absl::Time since_;
};

}  // namespace tessera

#endif  // TESSERA_SERVER_RPC_WAITING_LOG_H_
