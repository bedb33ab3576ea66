#include "common/rpc/own_name.h"

#include <algorithm>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "absl/types/optional.h"
#include "common/base/host_port.h"
#include "common/base/log.h"
#include "common/base/long_wait.h"
#include "common/base/steady_clock.h"

namespace tessera {
namespace {

constexpr absl::Duration kPause = absl::Milliseconds(250);
constexpr absl::Duration kLogInterval = absl::Seconds(10);

}  // namespace

std::string ListenEverywhere(const std::string& address) {
  const absl::optional<HostPort> parsed = ParseHostPort(address);
  return absl::StrCat("start it with --listen 0.0.0.0:", parsed.has_value() ? parsed->port : 0);
}

absl::Status AwaitOwnName(const OwnName& name) {
  // An address that is wrong, and one that needs no look, is for whoever listens there.
  if (!HasName(name.address) || IsLoopback(name.address)) return absl::OkStatus();
  const std::string host = ParseHostPort(name.address)->host;
  const absl::Time give_up = SteadyNow() + name.patience;
  // The first line is due at once, and the next ones after kLogInterval each.
  LongWait wait(SteadyNow() - kLogInterval, kLogInterval);
  absl::StatusOr<std::vector<std::string>> found = name.resolve(host);
  while (!found.ok()) {
    const absl::Duration left = give_up - SteadyNow();
    if (left <= absl::ZeroDuration()) {
      return absl::InvalidArgumentError(absl::StrCat(
          name.who, ": host of \"", name.address,
          "\" is not known here: ", found.status().message(), "; waited for ",
          absl::FormatDuration(name.patience), "; correct the name, or ", name.advice));
    }
    if (wait.IsDue(SteadyNow())) {
      Log(LogLevel::kWarning,
          absl::StrCat(name.who, ": waiting for its own name to be known at=", name.address,
                       " why=\"", found.status().message(),
                       "\" gives_up_s=", absl::ToInt64Seconds(absl::Ceil(left, absl::Seconds(1)))));
    }
    absl::SleepFor(std::min(kPause, left));
    found = name.resolve(host);
  }
  if (AreLoopback(*found)) {
    Log(LogLevel::kWarning,
        absl::StrCat(name.who, ": listens on loopback alone at=", name.address,
                     " which_is=", absl::StrJoin(*found, ","),
                     "; other machines cannot reach it: if they are to, ", name.advice));
  }
  return absl::OkStatus();
}

}  // namespace tessera
