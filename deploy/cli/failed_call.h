// What whoever called a job is told where the call failed.
#ifndef TESSERA_DEPLOY_CLI_FAILED_CALL_H_
#define TESSERA_DEPLOY_CLI_FAILED_CALL_H_

#include <cstdio>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/string_view.h"
#include "common/base/printable.h"

namespace tessera {

// Prints `what`, why, and where to look; returns the exit code: 2 where the caller's token is wrong, else 1.
inline int TellFailedCall(absl::string_view what, const absl::Status& status) {
  const bool is_refused = absl::IsUnauthenticated(status) || absl::IsPermissionDenied(status);
  absl::string_view advice;
  if (absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status)) {
    advice = "; is a tessera-server running there?";
    // These words are all that is heard of a server that speaks TLS, or wants a certificate.
    if (absl::StrContains(status.message(), "Socket closed")) {
      advice =
          "; is a tessera-server running there? One with TLS wants --authority, and perhaps "
          "--certificate and --private-key";
    }
  }
  std::fprintf(stderr, "tessera: %s: %s%s\n", std::string(what).c_str(),
               ToPrintable(status.message()).c_str(), std::string(advice).c_str());
  return is_refused ? 2 : 1;
}

}  // namespace tessera

#endif  // TESSERA_DEPLOY_CLI_FAILED_CALL_H_
