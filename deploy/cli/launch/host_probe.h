// What a machine says of itself before a job is launched on it.
//
// The probe is a script of a POSIX shell, which needs nothing there but what every Linux has. Its answers are lines
// "@KEY VALUE"; a login's greetings may stand between them.
#ifndef TESSERA_DEPLOY_CLI_LAUNCH_HOST_PROBE_H_
#define TESSERA_DEPLOY_CLI_LAUNCH_HOST_PROBE_H_

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace tessera {

struct HostFacts {
  bool is_whole = false;  // the script came to its end
  std::string machine;    // "Linux x86_64"
  std::string directory;  // absolute
  bool is_writable = false;
  int64_t room_bytes = -1;  // -1: not known
  int64_t clock_seconds = 0;
  int cores = 0;
  bool has_bundle = false;
  bool has_data = false;
  std::vector<std::string> missing;  // programs
  std::set<int> taken;               // ports at which somebody listens
};

// `directory`: as LaunchHost has it. `bundle` and `data`: digests; an empty one is not looked for.
std::string ProbeScript(const std::string& directory, const std::string& bundle,
                        const std::string& data);

HostFacts ReadProbe(absl::string_view text);

// All that keeps a machine from running the bundle of this one, `own_machine`, each with what to do. `bundle_bytes` is
// the room that a bundle takes.
std::vector<std::string> FaultsOf(const HostFacts& facts, absl::string_view own_machine,
                                  int64_t bundle_bytes);

// "its clock is 12 s ahead", where it is off by so much that logs are hard to read; else empty. The answer came
// between `asked` and `answered`.
std::string ClockNote(const HostFacts& facts, absl::Time asked, absl::Time answered);

}  // namespace tessera

#endif  // TESSERA_DEPLOY_CLI_LAUNCH_HOST_PROBE_H_
