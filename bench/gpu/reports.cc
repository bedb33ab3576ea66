#include "bench/gpu/reports.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "bench/gpu/verdict.h"
#include "common/base/check.h"

namespace tessera {
namespace {

constexpr absl::string_view kInTurn = "in_turn_";
constexpr absl::string_view kOverlap = "overlap_";
constexpr double kWaitsMax = 0.1;
// The aim is stated for an exchange every so many local steps.
constexpr int64_t kAimSteps = 2;
// How far the training loss may differ between devices.
constexpr double kLossDifference = 1e-3;

absl::StatusOr<nlohmann::json> ReadReport(const std::string& path) {
  std::ifstream file(path);
  nlohmann::json report = nlohmann::json::parse(file, nullptr, false);
  if (report.is_discarded()) return absl::InvalidArgumentError(absl::StrCat(path, ": no report"));
  return report;
}

// The number at `keys`, one within the other. kInvalidArgument: there is none; one that is not finite was written
// as null.
absl::StatusOr<double> NumberAt(const std::string& path, const nlohmann::json& report,
                                std::initializer_list<const char*> keys) {
  const nlohmann::json* at = &report;
  for (const char* key : keys) {
    const auto found = at->is_object() ? at->find(key) : at->end();
    if (found == at->end()) {
      return absl::InvalidArgumentError(absl::StrCat(path, ": no report, it has no ", key));
    }
    at = &*found;
  }
  if (at->is_number()) return at->get<double>();
  return absl::InvalidArgumentError(
      absl::StrCat(path, ": ", absl::StrJoin(keys, "."), " is no finite number"));
}

// kInternal: the job ended without all of its workers. One whose GPU failed leaves a job that goes on and ends well.
absl::Status CheckWhole(const std::string& path, const nlohmann::json& report) {
  if (!report.is_object()) return absl::InvalidArgumentError(absl::StrCat(path, ": no report"));
  const nlohmann::json outcome = report.value("outcome", nlohmann::json("finished"));
  if (outcome != "finished") {
    return absl::InternalError(
        absl::StrCat(path, ": the job's outcome is ", outcome.dump(), ", want \"finished\""));
  }
  const double lost = NumberAt(path, report, {"members", "lost"}).value_or(0);
  if (lost == 0) return absl::OkStatus();
  return absl::InternalError(absl::StrCat(path, ": ", lost, " workers were lost, want none"));
}

struct Line {
  std::string name;
  int64_t workers = 0;
  double steps = 0;  // 0: not told
  double examples_per_second = 0;
  // Sums over the workers.
  double compute = 0;
  double waited = 0;
  double exchanges = 0;
  double bytes = 0;
  double loss = 0;

  double waits() const { return waited / (compute + waited); }
  // N of NAME_N; 0: the name does not begin so.
  int64_t StepsOf(absl::string_view kind) const {
    int64_t steps = 0;
    if (!absl::StartsWith(name, kind)) return 0;
    return absl::SimpleAtoi(name.substr(kind.size()), &steps) ? steps : 0;
  }
};

// Reads "name=path" and makes a line of the report's figures.
absl::StatusOr<Line> LineOf(const std::string& item) {
  const std::pair<std::string, std::string> parts = absl::StrSplit(item, absl::MaxSplits('=', 1));
  TESSERA_ASSIGN_OR_RETURN(nlohmann::json report, ReadReport(parts.second));
  const auto number = [&](std::initializer_list<const char*> keys) {
    return NumberAt(parts.second, report, keys);
  };
  Line line;
  line.name = parts.first;
  TESSERA_RETURN_IF_ERROR(CheckWhole(parts.second, report));
  TESSERA_ASSIGN_OR_RETURN(line.examples_per_second, number({"examples_per_second"}));
  for (const nlohmann::json& phase : report.value("phases", nlohmann::json::array())) {
    TESSERA_ASSIGN_OR_RETURN(const double compute,
                             NumberAt(parts.second, phase, {"compute_seconds"}));
    line.compute += compute;
    ++line.workers;
    for (const char* other : {"pull_seconds", "push_seconds", "wait_seconds"}) {
      TESSERA_ASSIGN_OR_RETURN(const double seconds, NumberAt(parts.second, phase, {other}));
      line.waited += seconds;
    }
  }
  TESSERA_ASSIGN_OR_RETURN(line.exchanges, number({"traffic", "exchanges"}));
  TESSERA_ASSIGN_OR_RETURN(const double pushed, number({"traffic", "push_payload_bytes"}));
  TESSERA_ASSIGN_OR_RETURN(const double pulled, number({"traffic", "pull_payload_bytes"}));
  line.bytes = pushed + pulled;
  line.steps = number({"steps"}).value_or(0);
  // A job that diverged has a rate all the same.
  line.loss = number({"final", "train_loss"}).value_or(std::nan(""));
  return line;
}

// Seconds that overlapping jobs compute for a step: of the shortest and the longest the difference, as each has a start
// besides, in which libraries are loaded and steps recorded. 0: there are no two.
double ComputePerStep(const std::vector<Line>& lines) {
  const Line *shortest = nullptr, *longest = nullptr;
  for (const Line& line : lines) {
    if (line.StepsOf(kOverlap) == 0 || line.steps == 0) continue;
    if (shortest == nullptr || line.steps < shortest->steps) shortest = &line;
    if (longest == nullptr || line.steps > longest->steps) longest = &line;
  }
  if (shortest == nullptr || shortest->steps == longest->steps) return 0;
  return std::max(0.0, longest->compute - shortest->compute) / (longest->steps - shortest->steps);
}

// The largest difference of the CPU's and the device's values of `key` in two histories, as a share of the CPU's.
struct Deviation {
  size_t values = 0;
  double largest = 0;
};

// How far two jobs' losses are apart, evaluation by evaluation; an error where they cannot be compared.
absl::StatusOr<Deviation> DeviationOf(const std::vector<std::string>& paths,
                                      const nlohmann::json (&reports)[2], const char* key) {
  const nlohmann::json none = nlohmann::json::array();
  const nlohmann::json a = reports[0].value("history", none), b = reports[1].value("history", none);
  if (a.size() != b.size()) {
    return absl::InternalError(
        absl::StrCat("history: the device's has ", b.size(), " evaluations, want ", a.size()));
  }
  Deviation deviation;
  for (size_t i = 0; i < a.size(); ++i) {
    TESSERA_ASSIGN_OR_RETURN(const double want, NumberAt(paths[0], a[i], {key}));
    TESSERA_ASSIGN_OR_RETURN(const double got, NumberAt(paths[1], b[i], {key}));
    // The check for equality comes first, as both may be 0.
    const double apart = got == want ? 0 : std::fabs(got - want) / std::fabs(want);
    deviation = {i + 1, std::max(deviation.largest, apart)};
  }
  return deviation;
}

}  // namespace

absl::Status PrintReports(const std::vector<std::string>& reports) {
  std::vector<Line> lines;
  absl::Status broken;
  double exchange = 0;  // seconds, where nothing goes on beside it
  for (const std::string& item : reports) {
    const absl::StatusOr<Line> line = LineOf(item);
    if (!line.ok()) {
      // The others' are worth a table.
      broken.Update(line.status());
      continue;
    }
    if (line->StepsOf(kInTurn) > 0 && exchange == 0) exchange = line->waited / line->exchanges;
    lines.push_back(*line);
  }
  const double per_step = ComputePerStep(lines);
  std::printf("\n%-26s %7s %12s %10s %8s %8s %8s %8s\n", "job", "workers", "examples/s",
              "compute s", "waits", "at best", "GB/s", "loss");
  int64_t enough = 0;  // overlapping jobs with so many local steps or more wait less than aimed at
  for (const Line& line : lines) {
    const int64_t overlaps = line.StepsOf(kOverlap);
    std::string at_best = "-";
    if (overlaps > 0 && exchange > 0) {
      const double hides =
          per_step > 0 ? per_step * static_cast<double>(overlaps) : line.compute / line.exchanges;
      at_best = absl::StrFormat("%.2f", std::max(0.0, 1 - hides / exchange));
    }
    if (overlaps > 0 && line.waits() >= kWaitsMax) enough = 0;
    if (overlaps > 0 && line.waits() < kWaitsMax && enough == 0) enough = overlaps;
    // GB/s are of the time that was waited: near the link's own rate, nothing but the link is left.
    std::printf("%-26s %7lld %12.1f %10.2f %8.2f %8s %8.2f %8.4f%s\n", line.name.c_str(),
                static_cast<long long>(line.workers), line.examples_per_second, line.compute,
                line.waits(), at_best.c_str(), line.bytes / line.waited * 1e-9, line.loss,
                Verdict(overlaps == kAimSteps, line.waits() < kWaitsMax));
  }
  if (exchange > 0) {
    std::printf("an exchange takes %.1f ms by itself; less than %.2f is waited %s\n",
                exchange * 1e3, kWaitsMax,
                enough > 0 ? absl::StrCat("from ", enough, " local steps on").c_str()
                           : "with none of these local steps");
  }
  return broken;
}

absl::Status CompareReports(const std::vector<std::string>& paths) {
  if (paths.size() != 2) return absl::InvalidArgumentError("--same: want two reports");
  nlohmann::json reports[2];
  for (int i = 0; i < 2; ++i) {
    TESSERA_ASSIGN_OR_RETURN(reports[i], ReadReport(paths[i]));
    TESSERA_RETURN_IF_ERROR(CheckWhole(paths[i], reports[i]));
  }
  for (const char* key : {"push_payload_bytes", "pull_payload_bytes", "exchanges"}) {
    TESSERA_ASSIGN_OR_RETURN(const double a, NumberAt(paths[0], reports[0], {"traffic", key}));
    TESSERA_ASSIGN_OR_RETURN(const double b, NumberAt(paths[1], reports[1], {"traffic", key}));
    std::printf("%-26s %16.0f %16.0f\n", key, a, b);
    if (a != b) return absl::InternalError(absl::StrCat(key, " differ"));
  }
  TESSERA_ASSIGN_OR_RETURN(const double a, NumberAt(paths[0], reports[0], {"final", "train_loss"}));
  TESSERA_ASSIGN_OR_RETURN(const double b, NumberAt(paths[1], reports[1], {"final", "train_loss"}));
  std::printf("%-26s %16.6f %16.6f\n", "train_loss", a, b);
  TESSERA_ASSIGN_OR_RETURN(const Deviation train, DeviationOf(paths, reports, "train_loss"));
  TESSERA_ASSIGN_OR_RETURN(const Deviation test, DeviationOf(paths, reports, "test_loss"));
  std::printf("largest difference of %zu losses: %.1e in training, %.1e of the test rows\n",
              train.values, train.largest, test.largest);
  // The difference counts, not the ratio, as both may be 0.
  if (std::fabs(a - b) <= kLossDifference * std::fabs(b) && train.largest <= kLossDifference) {
    return absl::OkStatus();
  }
  return absl::InternalError(absl::StrCat("train_loss differs by more than ", kLossDifference));
}

}  // namespace tessera
