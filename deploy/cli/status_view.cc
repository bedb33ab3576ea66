#include "deploy/cli/status_view.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "common/base/printable.h"
#include "common/metrics/staleness.h"
#include "deploy/cli/counted.h"
#include "deploy/cli/how_far.h"
#include "deploy/cli/staleness_bars.h"
#include "deploy/cli/wrap.h"
#include "server/control/status_fields.h"

namespace tessera {
namespace {

// The number of evaluations shown, the newest ones.
constexpr int kHistoryShown = 5;
// What stands in place of what is not known.
constexpr char kUnknown[] = "-";
// The least columns that a job's name gets.
constexpr int kNameMin = 8;
// The least columns that a histogram gets on the line of its mean; with fewer it has a line of its own.
constexpr int kBarsBesideMin = 40;

// The columns of a protobuf string, which is UTF-8. Wide and combining characters count as one, too.
int Columns(absl::string_view text) {
  return static_cast<int>(
      std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

// Cuts a line to `width` columns, between characters, with a mark where something is missing.
std::string Clip(absl::string_view text, int width) {
  const bool is_cut = Columns(text) > width;
  std::string line;
  for (int left = is_cut ? width - 1 : width; left > 0 && !text.empty(); --left) {
    size_t bytes = 1;
    while (bytes < text.size() && (text[bytes] & 0xC0) == 0x80) ++bytes;
    const absl::string_view character = text.substr(0, bytes);
    absl::StrAppend(&line, ToPrintable(character) == character ? character : "?");
    text.remove_prefix(bytes);
  }
  return is_cut ? line + "~" : line;
}

// A count in four digits at most, so that columns stay narrow.
std::string Count(double value) {
  if (!std::isfinite(value)) return "-";
  if (value < 10000) return absl::StrFormat("%.0f", value);
  static constexpr const char* kUnits[] = {"k", "M", "G", "T", "P"};
  int unit = -1;
  while (value >= 1000 && unit < 4) {
    value /= 1000;
    ++unit;
  }
  return absl::StrFormat("%.3g%s", value, kUnits[unit]);
}

// A time in the unit that a person would use for it.
std::string Seconds(double seconds) {
  if (!(seconds >= 0)) return "-";
  if (seconds < 60) return absl::StrFormat("%.1fs", seconds);
  const auto whole = static_cast<int64_t>(std::min(seconds, 1e15));
  if (whole < 3600) return absl::StrFormat("%dm%02ds", whole / 60, whole % 60);
  return absl::StrFormat("%dh%02dm", whole / 3600, whole / 60 % 60);
}

// Cells in columns. A column of lower priority is left out before one of higher.
class Table {
 public:
  Table(std::vector<std::string> heads, std::vector<int> priorities)
      : priorities_(std::move(priorities)), rows_{std::move(heads)} {}

  void Add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }

  std::string Text(int width) const {
    const size_t columns = priorities_.size();
    std::vector<int> widths(columns, 0);
    for (const auto& row : rows_) {
      for (size_t i = 0; i < columns; ++i) {
        widths[i] = std::max(widths[i], Columns(row[i]));
      }
    }
    std::vector<bool> shown(columns, true);
    while (true) {
      int sum = 0, least = -1;
      for (size_t i = 0; i < columns; ++i) {
        if (!shown[i]) continue;
        sum += widths[i] + 2;
        if (least < 0 || priorities_[i] < priorities_[least]) least = i;
      }
      if (sum <= width || std::count(shown.begin(), shown.end(), true) == 1) break;
      shown[least] = false;
    }
    std::string text;
    for (const auto& row : rows_) {
      std::string line;
      for (size_t i = 0; i < columns; ++i) {
        if (shown[i]) {
          absl::StrAppend(&line, "  ", std::string(widths[i] - Columns(row[i]), ' '), row[i]);
        }
      }
      absl::StrAppend(&text, Clip(line, width), "\n");
    }
    return text;
  }

 private:
  const std::vector<int> priorities_;
  std::vector<std::vector<std::string>> rows_;
};

// The table of servers. Columns go first that say least, where the terminal is narrow.
std::string Servers(const v1::JobStatus& status, int width) {
  Table table({"server", "version", "pushes", "stale", "parked", "parameters", "rss", "address"},
              {9, 8, 7, 6, 5, 4, 3, 2});
  for (const v1::ServerStatus& server : status.servers()) {
    const v1::ServerCounters& c = server.counters();
    // Nothing is known of a server that never came, nor what it has not told yet, or cannot know yet.
    const bool is_there = !server.address().empty();
    const auto known = [](bool is_known, std::string text) { return is_known ? text : kUnknown; };
    const double stale = static_cast<double>(c.staleness_sum()) / c.pushes();
    table.Add(
        {absl::StrCat(server.rank()), known(is_there, Count(c.version())),
         known(is_there, Count(c.pushes())), known(c.pushes() > 0, absl::StrFormat("%.2f", stale)),
         known(is_there, absl::StrCat(c.parked_pulls())),
         known(c.parameter_bytes() > 0, Bytes(c.parameter_bytes())),
         known(c.rss_bytes() > 0, Bytes(c.rss_bytes())), is_there ? server.address() : "missing"});
  }
  return table.Text(width);
}

// What a worker has by its speed, and others have otherwise; empty: nothing.
struct Dealt {
  const char* head;
  std::string (*text)(const v1::MemberStatus& member);
};
constexpr Dealt kDealt[] = {
    {"budget",
     [](const v1::MemberStatus& member) {
       return member.step_budget() > 0 ? Count(member.step_budget()) : std::string();
     }},
    {"part",
     [](const v1::MemberStatus& member) {
       return member.part() > 0 ? absl::StrFormat("%.1f%%", 100 * member.part()) : std::string();
     }},
    {"rows",
     [](const v1::MemberStatus& member) {
       const uint64_t rows = member.progress().batch_rows();
       return rows > 0 ? Count(rows) : std::string();
     }},
};

// What the job deals out by speed; nullptr: nothing.
const Dealt* DealtIn(const v1::JobStatus& status) {
  for (const Dealt& dealt : kDealt) {
    for (const v1::MemberStatus& member : status.members()) {
      if (!dealt.text(member).empty()) return &dealt;
    }
  }
  return nullptr;
}

// Workers by rank; their speed only where something follows it.
std::string Workers(const v1::JobStatus& status, int width) {
  std::vector<const v1::MemberStatus*> by_rank;
  for (const v1::MemberStatus& member : status.members()) by_rank.push_back(&member);
  const Dealt* const dealt = DealtIn(status);
  std::stable_sort(by_rank.begin(), by_rank.end(),
                   [](const auto* a, const auto* b) { return a->rank() < b->rank(); });
  std::vector<std::string> heads = {"worker", "state",    "step",  "examples/s",
                                    "loss",   "progress", "heard", "from"};
  std::vector<int> priorities = {9, 8, 7, 5, 3, 2, 1, 0};
  if (dealt != nullptr) {
    heads.insert(heads.begin() + 4, {"steps/s", dealt->head});
    priorities.insert(priorities.begin() + 4, {4, 6});
  }
  Table table(std::move(heads), std::move(priorities));
  for (const v1::MemberStatus* by : by_rank) {
    const v1::MemberStatus& member = *by;
    const v1::Progress& progress = member.progress();
    // There is a rate once the worker has made a step.
    const bool has_rate = member.examples_per_second() > 0 || progress.examples() > 0;
    const std::string speed =
        progress.steps_per_second() > 0 ? Count(progress.steps_per_second()) : kUnknown;
    std::vector<std::string> row = {
        absl::StrCat(member.rank()),
        Clip(member.state(), 10),
        Count(progress.step()),
        has_rate ? Count(member.examples_per_second()) : kUnknown,
        progress.has_train_loss() ? Fraction(progress.train_loss()) : kUnknown,
        Seconds(member.progress_age_seconds()),
        Seconds(member.lease_age_seconds()),
        Clip(member.description(), 40)};
    if (dealt != nullptr) {
      const std::string text = dealt->text(member);
      row.insert(row.begin() + 4, {speed, text.empty() ? "-" : text});
    }
    table.Add(std::move(row));
  }
  return table.Text(width);
}

// The words of the status fields that stand in this place and are not 0.
std::vector<std::string> FieldWords(const v1::JobStatus& status, StatusField::Words::Place place) {
  std::vector<std::string> words;
  for (const StatusField& field : StatusFields()) {
    if (field.words.place != place) continue;
    const std::optional<StatusField::Value> value = field.value(status);
    const uint64_t count = value ? std::get<uint64_t>(*value) : 0;
    if (count == 0) continue;
    const char* const name = count == 1 ? field.words.one : field.words.several;
    words.push_back(place == StatusField::Words::Place::kLine ? absl::StrCat(name, " ", count)
                                                              : absl::StrCat(count, " ", name));
  }
  return words;
}

// What the parameters have learned from, how late updates were, who pauses. One line or several.
std::vector<std::string> Consistency(const v1::JobStatus& status, int width) {
  std::vector<std::string> lines;
  if (status.parameter_examples() > 0 || status.has_rate_factor()) {
    lines.push_back(absl::StrCat(
        "learned from ", Count(status.parameter_examples()), " examples",
        status.has_rate_factor() ? absl::StrFormat(", learning rate x %.3g", status.rate_factor())
                                 : ""));
  }
  const Staleness staleness = StalenessOf(status);
  if (staleness.pushes > 0 && (status.free_running() || staleness.max > 0)) {
    const std::string head =
        absl::StrFormat("staleness mean %.2f, max %d", staleness.mean(), staleness.max);
    const int beside = width - static_cast<int>(head.size()) - 2;
    const std::string bars = StalenessBars(staleness, beside);
    if (beside >= kBarsBesideMin && !bars.empty()) {
      lines.push_back(absl::StrCat(head, ": ", bars));
    } else {
      lines.push_back(head);
      lines.push_back(absl::StrCat("  ", StalenessBars(staleness, width - 2)));
    }
  }
  const std::vector<std::string> pauses = FieldWords(status, StatusField::Words::Place::kPauses);
  if (!pauses.empty()) lines.push_back(absl::StrJoin(pauses, ", "));
  return lines;
}

// What is known of checkpoints, a line for each fact.
std::vector<std::string> CheckpointLines(const v1::JobStatus& status) {
  std::vector<std::string> lines;
  if (!status.has_checkpoint()) return lines;
  const v1::CheckpointStatus& checkpoint = status.checkpoint();
  if (checkpoint.count() > 0) {
    lines.push_back(absl::StrCat("checkpoint of step ", Count(checkpoint.step()), ", ",
                                 Seconds(checkpoint.age_seconds()),
                                 " ago: ", Bytes(checkpoint.bytes()), " in ",
                                 absl::StrFormat("%.2f s", checkpoint.write_seconds())));
  }
  if (!checkpoint.failure().empty()) {
    lines.push_back(absl::StrCat("checkpoint failed: ", checkpoint.failure()));
  }
  if (checkpoint.has_resumed_step() || checkpoint.rollbacks() > 0) {
    std::string line = checkpoint.has_resumed_step()
                           ? absl::StrCat("resumed from step ", Count(checkpoint.resumed_step()))
                           : "";
    if (checkpoint.rollbacks() > 0) {
      absl::StrAppend(&line, line.empty() ? "" : ", ", "went back to a checkpoint ",
                      checkpoint.rollbacks(), checkpoint.rollbacks() == 1 ? " time" : " times");
    }
    lines.push_back(std::move(line));
  }
  return lines;
}

// Tells of the coordinator where it may be another process than it was, or is away.
std::vector<std::string> CoordinatorLines(const v1::JobStatus& status) {
  const v1::CoordinatorStatus& coordinator = status.coordinator();
  if (coordinator.is_away()) {
    return {absl::StrCat("coordinator is away: last heard ", Seconds(coordinator.silent_seconds()),
                         " ago, waits another ", Seconds(coordinator.waits_seconds()))};
  }
  if (coordinator.term() == 0 || coordinator.store().empty()) return {};
  return {
      absl::StrCat("coordinator of term ", coordinator.term(), ", kept in ", coordinator.store())};
}

// The table of the newest evaluations.
std::string History(const v1::JobStatus& status, int width) {
  // How many depths of top_k_accuracy are told: up to 5, or to 10.
  const int depths = status.history_size() == 0
                         ? 0
                         : status.history(status.history_size() - 1).top_k_accuracy_size();
  std::vector<std::string> heads = {"epoch",      "step",      "seconds",
                                    "train loss", "test loss", "accuracy"};
  std::vector<int> priorities = {7, 6, 5, 3, 4, 8};
  const auto add = [&](const char* head, int priority) {
    heads.emplace_back(head);
    priorities.push_back(priority);
  };
  const bool has_perplexity =
      status.history_size() > 0 && status.history(status.history_size() - 1).has_perplexity();
  if (has_perplexity) add("perplexity", 3);
  if (depths >= 3) add("top-5", 2);
  if (depths >= 4) add("top-10", 1);
  Table table(std::move(heads), std::move(priorities));
  for (int i = std::max(0, status.history_size() - kHistoryShown); i < status.history_size(); ++i) {
    const v1::HistoryEntry& entry = status.history(i);
    std::vector<std::string> row = {absl::StrFormat("%.2f", entry.epoch()),
                                    Count(entry.step()),
                                    absl::StrFormat("%.1f", entry.seconds()),
                                    Fraction(entry.train_loss()),
                                    Fraction(entry.test_loss()),
                                    Fraction(entry.test_accuracy())};
    if (has_perplexity) row.push_back(absl::StrFormat("%.3f", entry.perplexity()));
    for (int depth = 2; depth < std::min(depths, 4); ++depth) {
      const bool is_told = depth < entry.top_k_accuracy_size();
      row.push_back(is_told ? Fraction(entry.top_k_accuracy(depth)) : "-");
    }
    table.Add(std::move(row));
  }
  return table.Text(width);
}

// "standbys of 2 of 3 shards, none of shard 1; 1 takeover, the last in 0.2 s"
std::string StandbyLine(const v1::JobStatus& status) {
  int in_sync = 0;
  std::vector<std::string> bare;
  for (const v1::ShardOwner& owner : status.owners()) {
    in_sync += owner.in_sync();
    if (!owner.in_sync()) bare.push_back(absl::StrCat(owner.shard()));
  }
  std::string line = absl::StrCat("standbys of ", in_sync, " of ", status.owners_size(), " shards");
  if (!bare.empty()) absl::StrAppend(&line, ", none of shard ", absl::StrJoin(bare, ", "));
  if (status.takeovers() == 0) return line;
  absl::StrAppend(&line, "; ", status.takeovers(),
                  status.takeovers() == 1 ? " takeover" : " takeovers");
  if (status.takeover_seconds().empty()) return line;
  return absl::StrCat(line, ", the last in ",
                      Seconds(status.takeover_seconds(status.takeover_seconds_size() - 1)));
}

// The lines that stand above the lists.
std::string Head(const v1::JobStatus& status, int width) {
  std::string text;
  const auto say = [&](absl::string_view line) { absl::StrAppend(&text, Clip(line, width), "\n"); };
  // State and method stay, however long the name is.
  const std::string state =
      absl::StrCat(": ", status.state(), status.method().empty() ? "" : ", ", status.method());
  const std::string name = status.job().empty() ? "job" : status.job();
  say(absl::StrCat(Clip(name, std::max(kNameMin, width - Columns(state))), state));
  // Such lines are never cut, as what to do is often at the end.
  const auto say_all = [&](absl::string_view words) {
    for (const std::string& line : Wrap(words, width)) say(line);
  };
  if (WasStopped(status)) {
    say_all(StoppedText(status));
  } else if (!status.failure().empty()) {
    say_all(absl::StrCat("failed: ", status.failure()));
  }
  if (!status.waiting_for().empty()) {
    say_all(absl::StrCat("waits for ", absl::StrJoin(status.waiting_for(), ", ")));
  }
  say_all(status.method_description());
  if (status.steps_planned() > 0) {
    const double done = std::min(1.0, static_cast<double>(status.step()) / status.steps_planned());
    say(absl::StrFormat("step %s of %s (%.0f%%), epoch %.2f", Count(status.step()),
                        Count(status.steps_planned()), 100 * done, status.epoch()));
  }
  // A server other than the coordinator's does not know the job's name either.
  if (status.job().empty()) {
    const std::string& coordinator = status.coordinator().address();
    say_all(absl::StrCat(
        "this server's own share; the whole job: ",
        coordinator.empty() ? "ask server 0" : absl::StrCat("tessera status ", coordinator)));
  }
  // It does not know the job's times either.
  if (status.wall_seconds() > 0) {
    const bool is_resumed = status.checkpoint().has_resumed_step();
    say(absl::StrCat(Seconds(status.train_seconds()), " of training",
                     is_resumed ? " since the job began, " : ", ", Seconds(status.wall_seconds()),
                     is_resumed ? " in this run, " : " in all, ",
                     status.examples() > 0 ? Count(status.examples_per_second()) : kUnknown,
                     " examples/s"));
  }
  for (const std::string& line : Consistency(status, width)) say(line);
  if (status.members_lost() > 0) {
    say(absl::StrCat("lost ", status.members_lost(), " of ", status.members_joined(), " workers, ",
                     status.partial_pushes(), " partial pushes"));
  }
  for (const std::string& line : CheckpointLines(status)) say_all(line);
  if (!status.owners().empty()) say(StandbyLine(status));
  for (const std::string& line : CoordinatorLines(status)) say_all(line);
  for (const std::string& line : FieldWords(status, StatusField::Words::Place::kLine)) say(line);
  return text;
}

struct List {
  std::string text;
  std::string what;  // "12 servers"
};

// The tables in the order in which they are shown.
std::vector<List> Lists(const v1::JobStatus& status, int width) {
  std::vector<List> lists;
  if (status.servers_size() > 0) {
    lists.push_back({Servers(status, width), Counted(status.servers_size(), "server")});
  }
  if (status.members_size() > 0) {
    lists.push_back({Workers(status, width), Counted(status.members_size(), "worker")});
  }
  if (status.history_size() > 0) {
    // A report and an older server say no number of evaluations, but have all of them.
    const int64_t evaluations =
        std::max<int64_t>(static_cast<int64_t>(status.evaluations()), status.history_size());
    lists.push_back({History(status, width), Counted(evaluations, "evaluation")});
  }
  return lists;
}

// The first `lines` lines of a text.
absl::string_view FirstLines(absl::string_view text, int lines) {
  size_t end = 0;
  for (; lines > 0 && end < text.size(); --lines) end = text.find('\n', end) + 1;
  return text.substr(0, end);
}

int LinesOf(absl::string_view text) {
  return static_cast<int>(std::count(text.begin(), text.end(), '\n'));
}

}  // namespace

std::string StatusText(const v1::JobStatus& status, int width) {
  return StatusText(status, width, std::numeric_limits<int>::max());
}

std::string StatusText(const v1::JobStatus& status, int width, int height) {
  width = std::max(width, kViewWidthMin);
  height = std::max(height, kViewHeightMin);
  const std::string head = Head(status, width);
  const std::vector<List> lists = Lists(status, width);
  // Each has a blank line above it.
  std::vector<int> shown;
  int lines = LinesOf(head);
  for (const List& list : lists) {
    shown.push_back(LinesOf(list.text));
    lines += 1 + shown.back();
  }
  // The least that is shown of a list: its heads, a row, and how many more there are. Where there is no room for
  // that nothing of the last list is shown, then nothing of the one before it, and one line stands for all that
  // are gone.
  constexpr int kListLinesMin = 3;
  int gone = 0;
  while (lines + gone > height && !shown.empty()) {
    const auto longest = std::max_element(shown.begin(), shown.end());
    if (*longest > kListLinesMin) {
      --*longest;
      --lines;
    } else {
      lines -= shown.back() + 1;
      shown.pop_back();
      gone = 1;
    }
  }
  // What the last one took may be more than was wanted.
  for (bool grows = true; grows && lines + gone < height;) {
    grows = false;
    for (size_t i = 0; i < shown.size() && lines + gone < height; ++i) {
      if (shown[i] == LinesOf(lists[i].text)) continue;
      ++shown[i];
      ++lines;
      grows = true;
    }
  }
  std::string text = std::string(FirstLines(head, height));
  for (size_t i = 0; i < shown.size(); ++i) {
    const int left_out = LinesOf(lists[i].text) - shown[i];
    absl::StrAppend(&text, "\n", FirstLines(lists[i].text, left_out > 0 ? shown[i] - 1 : shown[i]));
    if (left_out > 0) absl::StrAppend(&text, "  ", left_out + 1, " more\n");
  }
  if (gone == 0 || lines + gone > height) return text;
  std::vector<std::string> whats;
  for (size_t i = shown.size(); i < lists.size(); ++i) whats.push_back(lists[i].what);
  return absl::StrCat(text, Clip(absl::StrCat("not shown: ", absl::StrJoin(whats, ", ")), width),
                      "\n");
}

std::string SilenceLine(const std::string& address, absl::Duration silence, int width) {
  const auto seconds = absl::Floor(silence, absl::Seconds(1));
  return Clip(absl::StrCat("no news from ", address, " for ", absl::FormatDuration(seconds)),
              std::max(width, kViewWidthMin)) +
         "\n";
}

std::string Redraw(const std::string& text, int lines_before) {
  std::string out;
  if (lines_before > 0) absl::StrAppend(&out, "\x1b[", lines_before, "A\r");
  // Erase to the end of each line, then what is left of a longer text.
  for (char c : text) {
    if (c == '\n') out += "\x1b[K";
    out += c;
  }
  return out + "\x1b[J";
}

}  // namespace tessera
