#include "common/base/failpoint.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace tessera {
namespace {

// Rules are made once and read by every thread; only the two counters change.
struct Rule {
  std::string place;
  std::string text;
  int64_t at = 0;  // 0: every time
  int error = 0;
  bool kills = false;
  absl::Duration sleep;
  std::atomic<int64_t> passed{0};
  std::atomic<bool> said{false};
};

// Reads what a rule does at its place. False: the text is no action of the grammar in the header.
bool ParseAction(absl::string_view action, Rule* rule) {
  int64_t milliseconds = 0;
  if (action == "kill") {
    rule->kills = true;
  } else if (action == "enospc") {
    rule->error = ENOSPC;
  } else if (action == "erofs") {
    rule->error = EROFS;
  } else if (action == "eio") {
    rule->error = EIO;
  } else if (action == "enolck") {
    rule->error = ENOLCK;
  } else if (action == "enosys") {
    rule->error = ENOSYS;
  } else if (action == "eopnotsupp") {
    rule->error = EOPNOTSUPP;
  } else if (absl::ConsumePrefix(&action, "sleep:") && absl::SimpleAtoi(action, &milliseconds)) {
    rule->sleep = absl::Milliseconds(milliseconds);
  } else {
    return false;
  }
  return true;
}

// The rules. They are never destroyed, as threads may pass places until the process ends.
std::deque<Rule>& Rules() {
  static std::deque<Rule>& rules = *[] {
    auto* parsed = new std::deque<Rule>();
    // Without the variable a place costs a look at an empty list.
    const char* text = getenv("TESSERA_FAILPOINTS");
    if (text == nullptr) return parsed;
    for (absl::string_view part : absl::StrSplit(text, ';', absl::SkipWhitespace())) {
      Rule& rule = parsed->emplace_back();
      rule.text = std::string(part);
      const std::pair<absl::string_view, absl::string_view> sides =
          absl::StrSplit(part, absl::MaxSplits('=', 1));
      const std::pair<absl::string_view, absl::string_view> where =
          absl::StrSplit(sides.first, absl::MaxSplits('@', 1));
      rule.place = std::string(where.first);
      const bool has_number = absl::StrContains(sides.first, '@');
      if (!ParseAction(sides.second, &rule) ||
          (has_number && (!absl::SimpleAtoi(where.second, &rule.at) || rule.at < 1))) {
        std::fprintf(stderr, "TESSERA_FAILPOINTS: got \"%s\", want PLACE[@N]=ACTION\n",
                     rule.text.c_str());
        // A mistyped rule would let a test pass without its fault, so the process ends at once.
        _exit(2);
      }
    }
    return parsed;
  }();
  return rules;
}

// What FailpointScope put in front of this thread's places, so that one process can tell its parts apart.
thread_local absl::string_view prefix;

bool Matches(absl::string_view rule, absl::string_view place) {
  return rule == "*" || (absl::ConsumePrefix(&rule, prefix) && rule == place);
}

}  // namespace

FailpointScope::FailpointScope(absl::string_view in_front) { prefix = in_front; }
FailpointScope::~FailpointScope() { prefix = {}; }

int Failpoint(absl::string_view place) {
  for (Rule& rule : Rules()) {
    if (!Matches(rule.place, place)) continue;
    // Each rule counts for itself, so that two rules at one place may strike at different times.
    const int64_t passed = ++rule.passed;
    if (rule.at != 0 && rule.at != passed) continue;
    // The log says once that a place was passed, so that a test can see that its place is still there.
    if (!rule.said.exchange(true)) {
      std::fprintf(stderr, "TESSERA_FAILPOINTS: %s at %s\n", rule.text.c_str(),
                   std::string(place).c_str());
    }
    // SIGKILL and not abort: nothing may be flushed or unlocked, as with a machine that loses power.
    if (rule.kills) kill(getpid(), SIGKILL);
    absl::SleepFor(rule.sleep);
    if (rule.error != 0) return rule.error;
  }
  return 0;
}

}  // namespace tessera
