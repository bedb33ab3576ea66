#include "server/page/status_page.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "server/page/curve.h"
#include "server/page/html.h"

namespace tessera {
namespace {

// The most bytes that are shown of a name, an address or a description, and of a sentence.
constexpr size_t kNameMax = 60;
constexpr size_t kWordsMax = 240;
// The most names that are shown of those for whom the job waits.
constexpr int kWaitNamesShown = 8;

// A table whose first cells are heads of their rows. Cells are HTML.
class HtmlTable {
 public:
  // Columns whose head begins with "-" are left out on narrow screens.
  explicit HtmlTable(std::vector<std::string> heads) : heads_(std::move(heads)) {
    for (const std::string& head : heads_) {
      absl::StrAppend(&rows_, "<th scope=\"col\"", Class(head), ">",
                      head[0] == '-' ? head.substr(1) : head, "</th>");
    }
    rows_ = absl::StrCat("<tr>", rows_, "</tr>");
  }
  void Add(const std::vector<std::string>& cells) {
    absl::StrAppend(&rows_, "<tr>");
    for (size_t i = 0; i < cells.size(); ++i) {
      absl::StrAppend(&rows_, i == 0 ? "<th scope=\"row\"" : "<td", Class(heads_[i]), ">", cells[i],
                      i == 0 ? "</th>" : "</td>");
    }
    absl::StrAppend(&rows_, "</tr>");
  }
  std::string Text() const {
    return absl::StrCat("<div class=\"scroll\"><table>", rows_, "</table></div>");
  }

 private:
  static absl::string_view Class(const std::string& head) {
    return head[0] == '-' ? " class=\"wide\"" : "";
  }

  const std::vector<std::string> heads_;
  std::string rows_;
};

std::string Section(absl::string_view title, absl::string_view content) {
  if (content.empty()) return "";
  return absl::StrCat("<section><h2>", title, "</h2>", content, "</section>");
}

std::string More(int all, int shown) {
  return all > shown ? absl::StrCat("<p class=\"note\">", all - shown, " more are not shown.</p>")
                     : "";
}

std::string Fact(absl::string_view name, absl::string_view value) {
  return absl::StrCat("<div><dt>", name, "</dt><dd>", value, "</dd></div>");
}

// What the job does, in a sentence.
std::string StateWords(const v1::JobStatus& status) {
  const std::string& state = status.state();
  if (state == "done") {
    if (status.outcome().empty()) return "The job is over.";
    return absl::StrCat("The job has ",
                        status.outcome() == "stopped" ? "been stopped" : Escaped(status.outcome()),
                        ".");
  }
  if (state == "training") return "Workers train.";
  if (state == "evaluating") return "Workers evaluate the model.";
  if (state == "draining") return "The job comes to its end.";
  if (state == "waiting") return "Nothing is trained yet.";
  return "This server has its own share of the job.";
}

std::string WaitWords(const v1::JobStatus& status) {
  if (status.state() == "done") return "";
  const int count = status.waiting_for_size();
  if (count == 0) return "<p class=\"wait none\">It waits for nobody.</p>";
  std::vector<std::string> names;
  for (int i = 0; i < std::min(count, kWaitNamesShown); ++i) {
    names.push_back(absl::StrCat("<b>", Escaped(status.waiting_for(i), kWordsMax), "</b>"));
  }
  const std::string more =
      count > kWaitNamesShown ? absl::StrCat(" and ", count - kWaitNamesShown, " more") : "";
  return absl::StrCat("<p class=\"wait\">It waits for ", absl::StrJoin(names, ", "), more, ".</p>");
}

std::string Head(const v1::JobStatus& status) {
  std::string head = absl::StrCat(
      "<header><h1>", status.job().empty() ? "tessera" : Escaped(status.job(), kNameMax),
      " <span class=\"state ", Escaped(status.state(), kNameMax), "\">",
      status.state().empty() ? "one server" : Escaped(status.state(), kNameMax), "</span></h1><p>",
      StateWords(status), "</p>", WaitWords(status));
  if (!status.failure().empty()) {
    absl::StrAppend(&head, "<p class=\"bad\">", Escaped(status.failure(), 2 * kWordsMax), "</p>");
  }
  if (status.coordinator().is_away()) {
    absl::StrAppend(&head, "<p class=\"bad\">The coordinator is away: last heard ",
                    ShortSeconds(status.coordinator().silent_seconds()), " ago.</p>");
  }
  return head + "</header>";
}

std::string Facts(const v1::JobStatus& status) {
  std::string facts;
  const std::string planned =
      status.steps_planned() > 0 ? absl::StrCat(" of ", Grouped(status.steps_planned())) : "";
  absl::StrAppend(&facts, Fact("step", absl::StrCat(Grouped(status.step()), planned)),
                  Fact("epoch", absl::StrFormat("%.2f", status.epoch())),
                  Fact("examples per second", Short(status.examples_per_second())),
                  Fact("trained", ShortSeconds(status.train_seconds())),
                  Fact("since the start", ShortSeconds(status.wall_seconds())));
  if (!status.history().empty()) {
    const v1::HistoryEntry& last = *status.history().rbegin();
    absl::StrAppend(&facts, Fact("test loss", Decimal(last.test_loss())));
    if (last.has_perplexity()) {
      absl::StrAppend(&facts, Fact("perplexity", Decimal(last.perplexity())));
    } else if (std::isfinite(last.test_accuracy())) {
      absl::StrAppend(&facts, Fact("accuracy", Decimal(last.test_accuracy())));
    }
  }
  if (!status.free_running()) absl::StrAppend(&facts, Fact("round", Grouped(status.round())));
  return absl::StrCat("<dl class=\"facts\">", facts, "</dl>");
}

std::string ShowStep(double step) {
  return absl::StrCat("step ", Grouped(static_cast<uint64_t>(step)));
}

// Curves of what was evaluated, over steps.
std::string HistoryCurves(const v1::JobStatus& status) {
  Curve loss{"loss", {{"test", {}}, {"train", {}}}, false, Decimal, ShowStep};
  Curve score{"accuracy on test rows", {{"accuracy", {}}}, false, Decimal, ShowStep};
  Curve perplexity{"perplexity on test rows", {{"perplexity", {}}}, false, Decimal, ShowStep};
  for (const v1::HistoryEntry& entry : status.history()) {
    const auto step = static_cast<double>(entry.step());
    loss.lines[0].points.push_back({step, entry.test_loss()});
    loss.lines[1].points.push_back({step, entry.train_loss()});
    if (entry.has_perplexity()) {
      perplexity.lines[0].points.push_back({step, entry.perplexity()});
    } else {
      score.lines[0].points.push_back({step, entry.test_accuracy()});
    }
  }
  return absl::StrCat(CurveHtml(loss), CurveHtml(score), CurveHtml(perplexity));
}

// Curves of how fast the job was, over time.
std::string RateCurves(const std::vector<RateSample>& samples) {
  Curve rate{"examples per second", {{"rate", {}}}, true, Short, ShortSeconds};
  Curve traffic{"traffic of workers",
                {{"traffic", {}}},
                true,
                [](double bytes) { return ShortBytes(bytes) + "/s"; },
                ShortSeconds};
  for (const RateSample& sample : samples) {
    rate.lines[0].points.push_back({sample.seconds, sample.examples_per_second});
    traffic.lines[0].points.push_back({sample.seconds, sample.bytes_per_second});
  }
  return absl::StrCat(CurveHtml(rate), CurveHtml(traffic));
}

// The shares of a worker's time as a bar, and in words for who cannot see it.
std::string PhaseBar(const v1::Phases& phases) {
  const std::pair<const char*, double> parts[] = {{"compute", phases.compute_seconds()},
                                                  {"pull", phases.pull_seconds()},
                                                  {"push", phases.push_seconds()},
                                                  {"wait", phases.wait_seconds()}};
  double all = 0;
  for (const auto& [name, seconds] : parts) all += std::max(0.0, seconds);
  if (!(all > 0) || !std::isfinite(all)) return kNotKnown;
  std::string bar, words;
  double begin = 0;
  for (const auto& [name, seconds] : parts) {
    const double share = 100 * std::max(0.0, seconds) / all;
    absl::StrAppendFormat(&bar, "<rect class=\"%s\" x=\"%.1f\" width=\"%.1f\" height=\"10\"/>",
                          name, begin, share);
    absl::StrAppendFormat(&words, "%s%s %.0f%%", words.empty() ? "" : ", ", name, share);
    begin += share;
  }
  return absl::StrCat(
      "<svg class=\"bar\" viewBox=\"0 0 100 10\" preserveAspectRatio=\"none\" role=\"img\"><title>",
      words, "</title>", bar, "</svg>");
}

std::string Doing(const v1::MemberStatus& member) {
  if (member.state() != "training") return Escaped(member.state(), kNameMax);
  switch (member.progress().work()) {
    case v1::Progress::MINIBATCH:
      return "computes";
    case v1::Progress::EVALUATION:
      return "evaluates";
    default:
      return "exchanges or waits";
  }
}

bool IsGone(const v1::MemberStatus& member) {
  return member.state() == "left" || member.state() == "lost";
}

// Those that take part by rank, and behind them those that are gone, the last ones first.
std::string Workers(const v1::JobStatus& status) {
  std::vector<const v1::MemberStatus*> members;
  for (const v1::MemberStatus& member : status.members()) members.push_back(&member);
  std::stable_sort(members.begin(), members.end(), [](const auto* a, const auto* b) {
    if (IsGone(*a) != IsGone(*b)) return IsGone(*b);
    return IsGone(*a) ? a->member() > b->member() : a->rank() < b->rank();
  });
  if (members.empty()) return "";
  HtmlTable table({"worker", "now", "step", "examples/s", "loss", "compute, pull, push, wait",
                   "progress", "heard", "-from"});
  for (size_t i = 0; i < members.size() && i < kPageWorkersMax; ++i) {
    const v1::MemberStatus& member = *members[i];
    const v1::Progress& progress = member.progress();
    const bool is_gone = IsGone(member);
    table.Add({absl::StrCat(member.rank()),
               absl::StrCat("<span class=\"state ", Escaped(member.state(), kNameMax), "\">",
                            Doing(member), "</span>"),
               Grouped(progress.step()), Short(member.examples_per_second()),
               progress.has_train_loss() ? Decimal(progress.train_loss()) : kNotKnown,
               PhaseBar(progress.phases()),
               is_gone ? kNotKnown : ShortSeconds(member.progress_age_seconds()),
               is_gone ? kNotKnown : ShortSeconds(member.lease_age_seconds()),
               Escaped(member.description(), kNameMax)});
  }
  return absl::StrCat(table.Text(), More(static_cast<int>(members.size()), kPageWorkersMax));
}

std::string StandbyOf(const v1::JobStatus& status, uint32_t rank) {
  for (const v1::ShardOwner& owner : status.owners()) {
    if (owner.shard() != rank) continue;
    if (!owner.has_standby()) return "none";
    return absl::StrCat("server ", owner.standby(), owner.in_sync() ? "" : ", copies yet");
  }
  return kNotKnown;
}

std::string Servers(const v1::JobStatus& status) {
  if (status.servers().empty()) return "";
  HtmlTable table({"server", "version", "staleness", "parked", "parameters", "memory", "standby",
                   "heard", "-address"});
  for (int i = 0; i < std::min(status.servers_size(), kPageServersMax); ++i) {
    const v1::ServerStatus& server = status.servers(i);
    const v1::ServerCounters& counters = server.counters();
    if (server.address().empty() && !status.job().empty()) {
      table.Add({absl::StrCat(server.rank()), kNotKnown, kNotKnown, kNotKnown, kNotKnown, kNotKnown,
                 StandbyOf(status, server.rank()), kNotKnown, "missing"});
      continue;
    }
    table.Add({absl::StrCat(server.rank()), Grouped(counters.version()),
               counters.pushes() > 0
                   ? absl::StrFormat("%.2f", static_cast<double>(counters.staleness_sum()) /
                                                 static_cast<double>(counters.pushes()))
                   : kNotKnown,
               Grouped(counters.parked_pulls()),
               ShortBytes(static_cast<double>(counters.parameter_bytes())),
               counters.rss_bytes() > 0 ? ShortBytes(static_cast<double>(counters.rss_bytes()))
                                        : kNotKnown,
               StandbyOf(status, server.rank()), ShortSeconds(server.counters_age_seconds()),
               Escaped(server.address(), kNameMax)});
  }
  return absl::StrCat(table.Text(), More(status.servers_size(), kPageServersMax));
}

std::string Checkpoints(const v1::JobStatus& status) {
  if (!status.has_checkpoint()) return "<p class=\"note\">The job keeps no checkpoints.</p>";
  const v1::CheckpointStatus& checkpoint = status.checkpoint();
  std::string text;
  const auto say = [&text](absl::string_view words) {
    absl::StrAppend(&text, "<p>", words, "</p>");
  };
  if (checkpoint.count() > 0) {
    say(absl::StrCat("The last one is of step ", Grouped(checkpoint.step()), ", ",
                     ShortSeconds(checkpoint.age_seconds()),
                     " old: ", ShortBytes(static_cast<double>(checkpoint.bytes())), " in ",
                     ShortSeconds(checkpoint.write_seconds()), "; ", Grouped(checkpoint.count()),
                     " of this run."));
  } else {
    say("There is none of this run yet.");
  }
  if (checkpoint.open_number() > 0) {
    say(absl::StrCat("Number ", checkpoint.open_number(), " is being written."));
  }
  if (!checkpoint.failure().empty()) {
    absl::StrAppend(&text, "<p class=\"bad\">Number ", checkpoint.failed_number(),
                    " failed: ", Escaped(checkpoint.failure(), kWordsMax), "</p>");
  }
  if (checkpoint.has_resumed_step()) {
    say(absl::StrCat("The job goes on from step ", Grouped(checkpoint.resumed_step()), "."));
  }
  if (checkpoint.rollbacks() > 0) {
    say(absl::StrCat("It went back to a checkpoint ", checkpoint.rollbacks(),
                     checkpoint.rollbacks() == 1 ? " time." : " times."));
  }
  return text;
}

std::string Events(const std::vector<v1::JobEvent>& events) {
  std::string list;
  int shown = 0;
  for (auto event = events.rbegin(); event != events.rend() && shown < kPageEventsMax;
       ++event, ++shown) {
    absl::StrAppend(&list, "<li class=\"", Escaped(event->kind(), kNameMax), "\"><time>",
                    ShortSeconds(event->seconds()), "</time> <b>", Escaped(event->who(), kNameMax),
                    "</b> ", Escaped(event->words(), kWordsMax), "</li>");
  }
  return list.empty() ? "" : absl::StrCat("<ol class=\"events\">", list, "</ol>");
}

std::string Foot(const v1::JobStatus& status) {
  return absl::StrCat("<footer><p>", Escaped(status.method_description(), kWordsMax),
                      "</p><p>tessera ", Escaped(status.version(), kNameMax), ", job ",
                      Escaped(absl::string_view(status.job_digest()).substr(0, 12)),
                      ", connections: ", Escaped(status.security(), kNameMax),
                      ". As data: <a href=\"/api/status\">status</a>, <a "
                      "href=\"/api/history\">history</a>.</p></footer>");
}

}  // namespace

std::string PageContent(const v1::JobStatus& status, const std::vector<RateSample>& samples,
                        const std::vector<v1::JobEvent>& events) {
  return absl::StrCat(Head(status), status.job().empty() ? "" : Facts(status),
                      "<div class=\"curves\">", HistoryCurves(status), RateCurves(samples),
                      "</div>", Section("Workers", Workers(status)),
                      Section("Servers", Servers(status)),
                      status.job().empty() ? "" : Section("Checkpoints", Checkpoints(status)),
                      Section("Events", Events(events)), Foot(status));
}

}  // namespace tessera
