#include "deploy/cli/progress.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/base/printable.h"
#include "common/base/steady_clock.h"
#include "common/base/utf8.h"
#include "common/metrics/staleness.h"
#include "deploy/cli/counted.h"
#include "deploy/cli/how_far.h"
#include "deploy/cli/terminal.h"
#include "deploy/cli/wrap.h"

namespace tessera {
namespace {

// The time after which a step that has not ended is told of, as people ask why.
constexpr absl::Duration kStalledAfter = absl::Seconds(2);
// Where the second column of the closing table begins, and the least width that it has.
constexpr int kSummaryIndent = 15;
constexpr int kSummaryWordsMin = 20;

// The words behind the reason, where the last checkpoint of a job has failed and everybody waits for the next try.
constexpr absl::string_view kTriedAgain = "; it is the last one, tried again in ";

// ", 1m20s left": of training, if it goes on as fast as so far. Empty where nobody can tell.
std::string TimeLeft(const v1::JobStatus& status) {
  const uint64_t step = status.step(), planned = status.steps_planned();
  // Nothing is told of the first second: its steps tell little.
  if (step == 0 || planned <= step || status.train_seconds() < 1) return "";
  const double per_step = status.train_seconds() / static_cast<double>(step);
  const absl::Duration left = absl::Seconds(per_step * static_cast<double>(planned - step));
  if (left >= absl::Hours(1000)) return "";
  const absl::Duration unit = left < absl::Hours(1) ? absl::Seconds(1) : absl::Minutes(1);
  return absl::StrCat(", ", absl::FormatDuration(absl::Ceil(left, unit)), " left");
}

// "[###.......]  30%" in so many columns beside the share that is done.
constexpr int kBarMin = 10, kBarMax = 30;
std::string Bar(double share, int cells) {
  const int done = std::clamp(static_cast<int>(share * cells), 0, cells);
  // 100 % is said of a job that has made all of its steps.
  return absl::StrFormat("[%s%s] %3d%%", std::string(done, '#'), std::string(cells - done, '.'),
                         static_cast<int>(share * 100));
}

// The columns that a bar takes beside its cells: brackets, a blank, and the share.
constexpr int kBarRest = 7;

// The line of a job that trains. What does not fit is left out, the least needed first.
std::string TrainingLine(const v1::JobStatus& status, int width, bool stalled) {
  int live = 0;
  for (const v1::MemberStatus& member : status.members()) {
    if (member.state() == "training" || member.state() == "evaluating") ++live;
  }
  std::string end;
  if (stalled && !status.waiting_for().empty()) {
    end = absl::StrCat("waiting for ", absl::StrJoin(status.waiting_for(), ", "));
  }
  const uint64_t planned = status.steps_planned();
  enum Part { kState, kBar, kEpoch, kFar, kRate, kSeconds, kWorkers, kEnd, kParts };
  std::string parts[kParts] = {status.state(),
                               planned > 0 ? std::string(kBarMin + kBarRest, ' ') : "",
                               absl::StrFormat("epoch %.1f", status.epoch()),
                               HowFar(status) + TimeLeft(status),
                               Thousands(status.examples_per_second()) + " examples/s",
                               absl::StrFormat("%.1f s", status.train_seconds()),
                               Counted(live, "worker"),
                               end};
  const auto line = [&parts] {
    std::string text;
    for (const std::string& part : parts) {
      if (!part.empty()) absl::StrAppend(&text, text.empty() ? "" : "  ", part);
    }
    return text;
  };
  for (const Part part : {kWorkers, kSeconds, kEpoch, kBar}) {
    if (static_cast<int>(line().size()) <= width) break;
    parts[part].clear();
  }
  if (!parts[kBar].empty()) {
    const int room = width - static_cast<int>(line().size());
    const double share = static_cast<double>(status.step()) / static_cast<double>(planned);
    parts[kBar] = Bar(std::min(share, 1.0), std::min(kBarMin + room, kBarMax));
  }
  return line();
}

bool IsTriedAgain(const v1::JobStatus& status) {
  return status.state() != "done" && absl::StrContains(status.checkpoint().failure(), kTriedAgain);
}

}  // namespace

std::string Progress::StatusLine(const v1::JobStatus& status, int width, bool stalled) {
  std::string line;
  if (IsTriedAgain(status)) {
    const absl::string_view failure = status.checkpoint().failure();
    const size_t at = failure.find(kTriedAgain);
    line = absl::StrCat("the last checkpoint failed, tried again in ",
                        failure.substr(at + kTriedAgain.size()), ": ", failure.substr(0, at));
  } else if (status.state() == "waiting") {
    line = absl::StrCat("waiting for ", absl::StrJoin(status.waiting_for(), ", "));
  } else {
    line = TrainingLine(status, width, stalled);
  }
  line = ToPrintable(line);
  if (static_cast<int>(line.size()) <= width) return line;
  line.resize(std::max(0, width));
  line.resize(Utf8PrefixBytes(line));
  return line;
}

std::string Progress::HistoryHeads() {
  return "   epoch    seconds  train loss   test loss  accuracy";
}

std::string Progress::HistoryLine(const v1::HistoryEntry& entry) {
  return absl::StrFormat("%8.1f %10.2f %11s %11s %9s", entry.epoch(), entry.seconds(),
                         Fraction(entry.train_loss()), Fraction(entry.test_loss()),
                         Fraction(entry.test_accuracy()));
}

std::optional<Progress::Made> Progress::DropUndone(const v1::JobStatus& status) {
  std::optional<Made> first;
  // A status without an evaluation may be that of a coordinator that has just begun, unless it tells of going
  // back.
  const bool knows = status.history_size() > 0 || status.checkpoint().rollbacks() > rollbacks_;
  const auto stands = [&status](const Made& made) {
    return std::any_of(status.history().begin(), status.history().end(),
                       [&made](const v1::HistoryEntry& entry) { return MadeAt(entry) == made; });
  };
  while (knows && !shown_.empty() && !stands(shown_.back())) {
    // A status that is too large has the last evaluation alone: of those before it, it says nothing.
    if (status.history_size() > 0 && status.history(0).step() > shown_.back().first) break;
    first = shown_.back();
    shown_.pop_back();
  }
  return first;
}

std::vector<std::string> Progress::NewLines(const v1::JobStatus& status) {
  std::vector<std::string> lines;
  const std::optional<Made> undone = DropUndone(status);
  const bool went_back = status.checkpoint().rollbacks() > rollbacks_;
  rollbacks_ = std::max<uint64_t>(rollbacks_, status.checkpoint().rollbacks());
  const uint64_t saved = status.checkpoint_step();
  if (undone.has_value() && (!went_back || undone->first < saved)) {
    // The checkpoint that is the last one by now is a later one.
    lines.push_back(absl::StrCat("the job went back, to before step ", undone->first));
  } else if (went_back) {
    lines.push_back(absl::StrCat("the job went back to its checkpoint of step ", saved));
  }
  int next = status.history_size();
  while (next > 0 && (shown_.empty() || MadeAt(status.history(next - 1)) != shown_.back())) --next;
  for (; next < status.history_size(); ++next) {
    const v1::HistoryEntry& entry = status.history(next);
    if (!std::exchange(heads_shown_, true)) {
      lines.push_back(HistoryHeads());
    }
    lines.push_back(HistoryLine(entry));
    shown_.push_back(MadeAt(entry));
  }
  // Each try that failed is told of once; when no other comes the job ends, and the closing table tells.
  if (IsTriedAgain(status) && status.checkpoint().failed_number() != failed_checkpoint_) {
    failed_checkpoint_ = status.checkpoint().failed_number();
    lines.push_back(absl::StrCat("checkpoint failed: ", status.checkpoint().failure()));
  }
  return lines;
}

void Progress::Show(const v1::JobStatus& status) {
  for (const std::string& line : NewLines(status)) Say(line);
  if (!live_) return;
  const absl::Time now = SteadyNow();
  if (status.step() != step_ || step_moved_ == absl::InfiniteFuture()) step_moved_ = now;
  step_ = status.step();
  const bool stalled = now - step_moved_ > kStalledAfter;
  std::printf("\r\x1b[K%s", StatusLine(status, TerminalWidth() - 1, stalled).c_str());
  std::fflush(stdout);
  drawn_ = true;
}

void Progress::Say(absl::string_view line) {
  Clear();
  std::printf("%.*s\n", static_cast<int>(line.size()), line.data());
  std::fflush(stdout);
}

void Progress::Clear() {
  if (drawn_) std::printf("\r\x1b[K");
  std::fflush(stdout);
  drawn_ = false;
}

std::string Progress::Summary(const v1::JobStatus& status, absl::string_view report_path, int width,
                              absl::string_view model) {
  const int words_width = std::max(kSummaryWordsMin, width - kSummaryIndent);
  double pulled = status.unreported().pull_payload_bytes();
  double pushed = status.unreported().push_payload_bytes();
  for (const v1::WorkerReport& worker : status.worker_reports()) {
    pulled += worker.pull_payload_bytes();
    pushed += worker.push_payload_bytes();
  }
  // What the job had done before it was resumed counts, but not how long that run took.
  const bool is_resumed = status.checkpoint().has_resumed_step();
  std::string text = absl::StrFormat("\n%s (%s): %.1f s of training%s, %.1f s in %s\n",
                                     status.job(), status.method(), status.train_seconds(),
                                     is_resumed ? " since the job began" : "",
                                     status.wall_seconds(), is_resumed ? "this run" : "all");
  const auto row = [&](absl::string_view name, absl::string_view value) {
    absl::StrAppendFormat(&text, "  %-12s %s\n", name, value);
  };
  absl::string_view head = "method";
  for (const std::string& line : Wrap(status.method_description(), words_width)) {
    row(std::exchange(head, ""), line);
  }
  head = "outcome";
  if (WasStopped(status)) {
    for (const std::string& line : Wrap(StoppedText(status), words_width)) {
      row(std::exchange(head, ""), line);
    }
  }
  if (status.history_size() > 0) {
    const v1::HistoryEntry& last = status.history(status.history_size() - 1);
    row("accuracy", Fraction(last.test_accuracy()));
  }
  const double examples = static_cast<double>(status.examples());
  row("examples/s",
      absl::StrCat(Thousands(status.train_seconds() > 0 ? examples / status.train_seconds() : 0),
                   is_resumed ? " since the job began" : ""));
  row("traffic", absl::StrCat("pulled ", Bytes(pulled), ", pushed ", Bytes(pushed)));
  const Staleness staleness = StalenessOf(status);
  if (staleness.pushes > 0 && (status.free_running() || staleness.max > 0)) {
    row("staleness", absl::StrFormat("mean %.2f, max %d", staleness.mean(), staleness.max));
  }
  if (const uint64_t lost = status.members_lost(); lost > 0) {
    row("lost", Counted(static_cast<int64_t>(lost), "worker"));
  }
  if (status.has_checkpoint()) {
    const v1::CheckpointStatus& checkpoint = status.checkpoint();
    row("checkpoint", checkpoint.count() > 0 ? absl::StrCat("of step ", checkpoint.step(), ", ",
                                                            Bytes(checkpoint.bytes()))
                                             : "none of this run");
    // A failed last checkpoint is told in capitals: whoever goes on from here would begin earlier than it seems.
    absl::string_view failed = "FAILED";
    for (const std::string& line : Wrap(ToPrintable(checkpoint.failure()), words_width)) {
      row(std::exchange(failed, ""), line);
    }
  }
  if (!model.empty()) row("model", model);
  row("report", report_path.empty() ? "not asked for (--report FILE)" : report_path);
  return text;
}

}  // namespace tessera
