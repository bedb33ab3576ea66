#include "deploy/cli/launch/host_list.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/base/host_port.h"

namespace tessera {
namespace {

// As many workers as a job may have.
constexpr int kProcessesMax = 1024;

// A name that may be a folder's, and no flag of ssh's.
bool IsHostName(absl::string_view host) {
  return !host.empty() && host[0] != '-' && host[0] != '.' &&
         std::all_of(host.begin(), host.end(), [](char c) {
           return absl::ascii_isalnum(c) ||
                  absl::string_view("._-:[]%").find(c) != absl::string_view::npos;
         });
}

// Collects hosts and all that is wrong with them.
class HostReader {
 public:
  // Reads a host with its keys; `where` is the place that errors name.
  void Add(absl::string_view where, absl::string_view text) {
    const std::vector<absl::string_view> words =
        absl::StrSplit(text, absl::ByAnyChar(" \t"), absl::SkipEmpty());
    LaunchHost host;
    if (words.empty() || !ReadName(words[0], &host)) {
      return Refuse(where, absl::StrCat("got \"", text, "\", want HOST, USER@HOST or HOST:PORT"));
    }
    for (size_t i = 1; i < words.size(); ++i) ReadKey(where, words[i], &host);
    const bool is_twice =
        std::any_of(hosts_.begin(), hosts_.end(),
                    [&host](const LaunchHost& other) { return other.name == host.name; });
    if (is_twice) Refuse(where, absl::StrCat("\"", host.name, "\" is there twice, want it once"));
    hosts_.push_back(std::move(host));
  }

  // The hosts, or all errors.
  absl::StatusOr<std::vector<LaunchHost>> Finish(absl::string_view where) {
    if (hosts_.empty() && errors_.empty()) Refuse(where, "got no host, want one or more");
    if (hosts_.size() > kHostsMax) {
      Refuse(where, absl::StrCat("got ", hosts_.size(), " hosts, want at most ", kHostsMax));
    }
    if (!errors_.empty()) return absl::InvalidArgumentError(absl::StrJoin(errors_, "\n"));
    return std::move(hosts_);
  }

 private:
  // Reads USER@HOST:PORT, of which only the host has to be there. False: it is none.
  static bool ReadName(absl::string_view text, LaunchHost* host) {
    const size_t at = text.rfind('@');
    const absl::string_view user = at == absl::string_view::npos ? "" : text.substr(0, at);
    absl::string_view name = at == absl::string_view::npos ? text : text.substr(at + 1);
    if (at == 0 || (!user.empty() && !IsHostName(user)) || !IsHostName(name)) return false;
    host->name = std::string(name);
    std::string machine(name);
    if (const auto port = ParseHostPort(name); port.has_value() && port->port > 0) {
      machine = port->host;
      host->ssh_port = port->port;
    } else if (std::count(name.begin(), name.end(), ':') == 1) {
      return false;
    }
    host->target = user.empty() ? machine : absl::StrCat(user, "@", machine);
    return true;
  }

  // Reads one KEY=VALUE of a hosts file.
  void ReadKey(absl::string_view where, absl::string_view word, LaunchHost* host) {
    const std::pair<absl::string_view, absl::string_view> pair =
        absl::StrSplit(word, absl::MaxSplits('=', 1));
    const auto [key, value] = pair;
    int count = 0;
    if ((key == "servers" || key == "workers") && absl::SimpleAtoi(value, &count) && count >= 0 &&
        count <= kProcessesMax) {
      (key == "servers" ? host->servers : host->workers) = count;
    } else if (key == "address" && IsHostName(value)) {
      host->address = std::string(value);
    } else if (key == "directory" && !value.empty()) {
      host->directory = std::string(value);
    } else {
      Refuse(where, absl::StrCat("got \"", word,
                                 "\", want address=HOST, directory=PATH, servers=N or workers=N"));
    }
  }

  void Refuse(absl::string_view where, absl::string_view what) {
    errors_.push_back(absl::StrCat(where, ": ", what));
  }

  std::vector<LaunchHost> hosts_;
  std::vector<std::string> errors_;
};

}  // namespace

absl::StatusOr<std::vector<LaunchHost>> ParseHostList(absl::string_view where,
                                                      absl::string_view text) {
  HostReader reader;
  for (const absl::string_view each : absl::StrSplit(text, ',')) {
    reader.Add(where, absl::StripAsciiWhitespace(each));
  }
  return reader.Finish(where);
}

absl::StatusOr<std::vector<LaunchHost>> ParseHostsFile(absl::string_view where,
                                                       absl::string_view text) {
  HostReader reader;
  int number = 0;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    ++number;
    const absl::string_view host = absl::StripAsciiWhitespace(line.substr(0, line.find('#')));
    if (!host.empty()) reader.Add(absl::StrCat(where, ":", number), host);
  }
  return reader.Finish(where);
}

}  // namespace tessera
