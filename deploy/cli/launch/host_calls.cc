#include "deploy/cli/launch/host_calls.h"

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <system_error>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "common/base/steady_clock.h"
#include "deploy/cli/run/child_process.h"

namespace tessera {
namespace {

constexpr absl::Duration kLook = absl::Milliseconds(10);
// Who takes longer is named, again and again.
constexpr absl::Duration kToldFirst = absl::Seconds(4);
constexpr absl::Duration kToldAgain = absl::Seconds(20);

// What a call has written so far.
std::string TextOf(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace

std::string HostAnswer::Why() const {
  if (!in_time) return "it has not answered in time";
  // Programs say last why they end.
  std::string last;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    const absl::string_view stripped = absl::StripAsciiWhitespace(line);
    if (!stripped.empty()) last = std::string(stripped);
  }
  return last.empty() ? absl::StrCat("exit code ", code) : last;
}

absl::StatusOr<std::vector<HostAnswer>> HostCalls::Call(absl::string_view what,
                                                        const std::vector<HostCall>& calls,
                                                        absl::Duration limit,
                                                        const RunSignals* signals) {
  std::vector<HostAnswer> answers;
  std::vector<std::optional<ChildProcess>> children;
  // One that cannot be started has its answer already.
  for (const HostCall& call : calls) {
    HostAnswer answer;
    answer.host = call.host;
    ChildProcess::Options options;
    options.name = call.host;
    options.program = call.program;
    options.arguments = call.arguments;
    options.log_path = absl::StrCat(folder_, "/call-", ++count_, ".log");
    absl::StatusOr<ChildProcess> child = ChildProcess::Start(std::move(options));
    children.emplace_back();
    if (child.ok()) {
      children.back() = *std::move(child);
    } else {
      answer = {call.host, 1, true, std::string(child.status().message())};
    }
    answers.push_back(std::move(answer));
  }
  // Calls that are left when this returns end with their objects.
  const absl::Time begin = SteadyNow();
  absl::Time told = begin + kToldFirst - kToldAgain;
  while (true) {
    std::vector<std::string> waits;
    for (size_t i = 0; i < calls.size(); ++i) {
      if (!children[i].has_value()) continue;
      const std::optional<ChildProcess::Exit> exit = children[i]->Poll();
      if (!exit.has_value()) {
        waits.push_back(calls[i].host);
        continue;
      }
      const std::string path = children[i]->log_path();
      answers[i].in_time = true;
      answers[i].code = exit->signal != 0 ? 128 + exit->signal : exit->code;
      answers[i].text = TextOf(path);
      children[i].reset();
      std::error_code error;
      std::filesystem::remove(path, error);
    }
    if (waits.empty() || SteadyNow() - begin > limit) return answers;
    if (signals != nullptr && signals->count > 0) {
      return absl::CancelledError("stopped before the job began");
    }
    if (tells_ && SteadyNow() - told > kToldAgain) {
      told = SteadyNow();
      std::fprintf(stderr, "tessera: waiting for %s: %s\n", absl::StrJoin(waits, ", ").c_str(),
                   std::string(what).c_str());
    }
    absl::SleepFor(kLook);
  }
}

}  // namespace tessera
