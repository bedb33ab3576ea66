#include "deploy/cli/watch_end.h"

#include <cstdio>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/base/printable.h"
#include "deploy/cli/failed_call.h"
#include "deploy/cli/how_far.h"

namespace tessera {

int ConcludeWatch(const std::string& address, const absl::Status& ended,
                  const std::optional<v1::JobStatus>& last) {
  if (!last.has_value()) {
    // The words are those of the command without --watch; the stream's own words begin with whose status it is,
    // too.
    const absl::string_view why =
        absl::StripPrefix(ended.message(), absl::StrCat("status of ", address, ": "));
    return TellFailedCall(absl::StrCat("no status from ", address),
                          absl::Status(ended.code(), why));
  }
  if (!last->failure().empty()) {
    std::fprintf(stderr, "tessera: %s\n", FailureText(*last).c_str());
    return 1;
  }
  if (last->state() == "done") return 0;
  if (ended.ok()) {
    std::fprintf(stderr, "tessera: the server does not tell of the job any more, which was %s\n",
                 ToPrintable(last->state()).c_str());
    return 1;
  }
  return TellFailedCall(absl::StrCat("connection lost while the job was ", last->state()), ended);
}

}  // namespace tessera
