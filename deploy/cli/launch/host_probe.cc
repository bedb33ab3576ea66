#include "deploy/cli/launch/host_probe.h"

#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "deploy/cli/counted.h"
#include "deploy/cli/launch/launch_bundle.h"
#include "deploy/cli/run/shell_word.h"

namespace tessera {
namespace {

// Clocks that differ by less are told apart by no log's reader.
constexpr absl::Duration kClockNoted = absl::Seconds(3);
// The state of a socket that listens, in /proc/net/tcp.
constexpr absl::string_view kListens = "0A";

// The port of a line of /proc/net/tcp, "0: 0100007F:1B58 00000000:0000 0A ...", if somebody listens there.
void ReadSocket(absl::string_view line, std::set<int>* taken) {
  const std::vector<absl::string_view> words = absl::StrSplit(line, ' ', absl::SkipEmpty());
  if (words.size() < 4 || words[3] != kListens) return;
  const absl::string_view port = words[1].substr(words[1].rfind(':') + 1);
  int number = 0;
  if (absl::SimpleHexAtoi(port, &number)) taken->insert(number);
}

}  // namespace

std::string ProbeScript(const std::string& directory, const std::string& bundle,
                        const std::string& data) {
  // The shell there knows the home folder, and this machine does not.
  std::string begin;
  if (directory.empty()) {
    begin = "d=\"$HOME/.cache/tessera\"; ";
  } else if (directory[0] == '/') {
    begin = absl::StrCat("d=", ShellWord(directory), "; ");
  } else {
    absl::string_view below = directory;
    absl::ConsumePrefix(&below, "~/");
    begin = absl::StrCat("d=\"$HOME\"/", ShellWord(below), "; ");
  }
  // A command that is missing leaves its line out or empty: the script always comes to its end.
  std::string script = absl::StrCat(
      begin,
      "echo \"@directory $d\"; echo \"@machine $(uname -s -m)\"; echo \"@clock $(date +%s)\"; "
      "echo \"@cores $(nproc)\"; mkdir -p \"$d\" && test -w \"$d\" && echo @writable; "
      "set -- $(df -Pk \"$d\" | tail -n 1); echo \"@room $4\"; "
      "for p in tar gzip sha256sum mktemp; do command -v $p >/dev/null || echo \"@missing $p\"; "
      "done; sed 's/^/@socket /' /proc/net/tcp /proc/net/tcp6 2>/dev/null; ");
  if (!bundle.empty()) {
    absl::StrAppend(&script, "test -f \"$d\"/bundles/", bundle, "/", kBundleList,
                    " && echo @bundle; ");
  }
  if (!data.empty()) absl::StrAppend(&script, "test -d \"$d\"/data/", data, " && echo @data; ");
  return script + "echo @end";
}

HostFacts ReadProbe(absl::string_view text) {
  HostFacts facts;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    if (!absl::ConsumePrefix(&line, "@")) continue;
    const std::pair<absl::string_view, absl::string_view> pair =
        absl::StrSplit(line, absl::MaxSplits(' ', 1));
    const absl::string_view key = pair.first, value = absl::StripAsciiWhitespace(pair.second);
    if (key == "directory") facts.directory = std::string(value);
    if (key == "machine") facts.machine = std::string(value);
    if (key == "clock" && !absl::SimpleAtoi(value, &facts.clock_seconds)) facts.clock_seconds = 0;
    if (key == "cores" && !absl::SimpleAtoi(value, &facts.cores)) facts.cores = 0;
    if (key == "writable") facts.is_writable = true;
    int64_t kibibytes = 0;
    if (key == "room" && absl::SimpleAtoi(value, &kibibytes)) facts.room_bytes = kibibytes << 10;
    if (key == "missing") facts.missing.emplace_back(value);
    if (key == "socket") ReadSocket(value, &facts.taken);
    if (key == "bundle") facts.has_bundle = true;
    if (key == "data") facts.has_data = true;
    if (key == "end") facts.is_whole = true;
  }
  return facts;
}

std::vector<std::string> FaultsOf(const HostFacts& facts, absl::string_view own_machine,
                                  int64_t bundle_bytes) {
  if (!facts.is_whole) {
    return {
        "its shell has not run a script of a POSIX shell to its end; can you run a command with "
        "ssh there?"};
  }
  std::vector<std::string> faults;
  if (facts.machine != own_machine) {
    faults.push_back(absl::StrCat("it is \"", facts.machine, "\", want \"", own_machine,
                                  "\", which the bundle is made for"));
  }
  for (const std::string& program : facts.missing) {
    faults.push_back(absl::StrCat("it has no ", program, ", which unpacks the bundle; install it"));
  }
  if (!facts.is_writable) {
    faults.push_back(absl::StrCat("\"", facts.directory,
                                  "\" cannot be written; name another folder with --directory"));
  } else if (!facts.has_bundle && facts.room_bytes >= 0 && facts.room_bytes < bundle_bytes) {
    faults.push_back(absl::StrCat("\"", facts.directory, "\" has room for ",
                                  Bytes(static_cast<double>(facts.room_bytes)),
                                  ", the bundle takes ", Bytes(static_cast<double>(bundle_bytes)),
                                  "; make room, or name another folder with --directory"));
  }
  return faults;
}

std::string ClockNote(const HostFacts& facts, absl::Time asked, absl::Time answered) {
  if (facts.clock_seconds == 0) return "";
  // The clock was read to the second.
  const absl::Time clock = absl::FromUnixSeconds(facts.clock_seconds);
  const absl::Duration ahead = clock - answered, behind = asked - clock - absl::Seconds(1);
  if (ahead <= kClockNoted && behind <= kClockNoted) return "";
  const bool is_ahead = ahead > kClockNoted;
  return absl::StrCat(
      "its clock is ",
      absl::FormatDuration(absl::Trunc(is_ahead ? ahead : behind, absl::Seconds(1))),
      is_ahead ? " ahead of" : " behind",
      " this machine's; leases do not depend on it, but certificates and logs do; "
      "run a time service");
}

}  // namespace tessera
