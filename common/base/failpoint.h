// Places where a test makes a program fail as disks and power do. They are compiled in, and do nothing
// unless the environment variable TESSERA_FAILPOINTS was set when the process passed its first one:
//
//   TESSERA_FAILPOINTS = rule { ";" rule }
//   rule               = place [ "@" number ] "=" action
//   place              = the name at the place, or "*" for all of them together
//   action             = "kill" | "enospc" | "erofs" | "eio" | "enolck" | "enosys" | "eopnotsupp" |
//                "sleep:" milliseconds
//
// "file.write@3=enospc": the disk is full at the third write. Without a number: every time. "*@17=kill"
// ends the process, as kill -9 does, at the 17th place that it passes, whatever its name: counting up
// until the process lives on tries them all. A rule that acts says so once, on stderr.
#ifndef TESSERA_COMMON_BASE_FAILPOINT_H_
#define TESSERA_COMMON_BASE_FAILPOINT_H_

#include "absl/strings/string_view.h"

namespace tessera {

// Passes a place. Returns 0, or the errno of the failure that the caller is to act upon, as if the operation named
// by `place` had ended with it. May sleep, or not return. Any thread.
int Failpoint(absl::string_view place);

// While it lives, the places that this thread passes have this in front of their names: "state." makes
// "state.file.write". One scope may not be within another.
class FailpointScope {
 public:
  explicit FailpointScope(absl::string_view prefix);
  ~FailpointScope();
  FailpointScope(const FailpointScope&) = delete;
  FailpointScope& operator=(const FailpointScope&) = delete;
};

}  // namespace tessera

#endif  // TESSERA_COMMON_BASE_FAILPOINT_H_
