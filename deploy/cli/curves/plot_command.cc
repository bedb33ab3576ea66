#include "deploy/cli/curves/plot_command.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/check.h"
#include "common/base/output_file.h"
#include "common/base/printable.h"
#include "deploy/cli/curves/curve.h"
#include "deploy/cli/curves/history_source.h"
#include "deploy/cli/curves/plot.h"

namespace tessera {
namespace {

absl::StatusOr<PlotAxis> FindAxis(absl::string_view flag, const std::string& name,
                                  const std::vector<PlotAxis>& axes) {
  std::vector<absl::string_view> names;
  for (const PlotAxis& axis : axes) {
    if (axis.name == name) return axis;
    names.push_back(axis.name);
  }
  return absl::InvalidArgumentError(
      absl::StrCat(flag, ": got \"", name, "\", want ", absl::StrJoin(names, " or ")));
}

// The reports' curves with the names that the legend has for them.
absl::StatusOr<std::vector<PlotLine>> ReadLines(const PlotOptions& options) {
  if (!options.labels.empty() && options.labels.size() != options.reports.size()) {
    return absl::InvalidArgumentError(absl::StrCat("--label: got ", options.labels.size(),
                                                   ", want none or one for each of ",
                                                   options.reports.size(), " reports"));
  }
  std::vector<PlotLine> lines;
  std::map<std::string, int> uses;
  for (const std::string& path : options.reports) {
    TESSERA_ASSIGN_OR_RETURN(const v1::JobStatus status, ReadReport(path));
    PlotLine line;
    line.curve = CurveOf(status);
    line.label = absl::StrCat(status.job(), " (", status.method(), ")");
    ++uses[line.label];
    lines.push_back(std::move(line));
  }
  for (size_t i = 0; i < lines.size(); ++i) {
    if (!options.labels.empty()) {
      lines[i].label = options.labels[i];
    } else if (uses[lines[i].label] > 1) {
      absl::StrAppend(&lines[i].label, " ", options.reports[i]);
    }
  }
  return lines;
}

absl::Status WritePlot(const PlotOptions& options) {
  TESSERA_ASSIGN_OR_RETURN(const PlotAxis x, FindAxis("--x", options.x, PlotAxesX()));
  TESSERA_ASSIGN_OR_RETURN(const PlotAxis y, FindAxis("--y", options.y, PlotAxesY()));
  TESSERA_RETURN_IF_ERROR(CheckIsNoInput("--out", options.out_path, options.reports));
  TESSERA_ASSIGN_OR_RETURN(const std::vector<PlotLine> lines, ReadLines(options));
  TESSERA_ASSIGN_OR_RETURN(std::string svg, PlotSvg(lines, x, y));
  if (options.out_path.empty()) {
    std::fputs(svg.c_str(), stdout);
    return absl::OkStatus();
  }
  svg.pop_back();  // WriteOutput ends the file with a line break of its own.
  return WriteOutput("--out", options.out_path, svg);
}

}  // namespace

int PlotReports(const PlotOptions& options) {
  const absl::Status status = WritePlot(options);
  if (status.ok()) return 0;
  std::fprintf(stderr, "tessera plot: %s\n", ToPrintable(status.message()).c_str());
  return absl::IsUnavailable(status) ? 1 : 2;
}

}  // namespace tessera
