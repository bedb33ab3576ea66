#include "deploy/cli/curves/plot_command.h"

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
#include "deploy/cli/counted.h"
#include "deploy/cli/curves/curve.h"
#include "deploy/cli/curves/curve_axes.h"
#include "deploy/cli/curves/history_source.h"
#include "deploy/cli/curves/plot.h"
#include "deploy/cli/curves/plot_table.h"

namespace tessera {
namespace {

absl::StatusOr<CurveAxis> FindAxis(absl::string_view flag, const std::string& name,
                                   const std::vector<CurveAxis>& axes) {
  std::vector<absl::string_view> names;
  for (const CurveAxis& axis : axes) {
    if (axis.name == name) return axis;
    names.push_back(axis.name);
  }
  return absl::InvalidArgumentError(
      absl::StrCat(flag, ": got \"", name, "\", want ", absl::StrJoin(names, " or ")));
}

// A picture before it is drawn.
struct Drawing {
  std::vector<PlotLine> lines;
  PlotAxis x, y;
};

absl::Status CheckLabels(const PlotOptions& options, size_t lines, absl::string_view what) {
  if (options.labels.empty() || options.labels.size() == lines) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "--label: got ", options.labels.size(), ", want none or one for each of ", lines, " ", what));
}

// The reports' curves with the names that the legend has for them.
absl::StatusOr<Drawing> DrawReports(const PlotOptions& options) {
  TESSERA_ASSIGN_OR_RETURN(const CurveAxis x,
                           FindAxis("--x", options.x.value_or("seconds"), CurveAxesX()));
  TESSERA_ASSIGN_OR_RETURN(const CurveAxis y,
                           FindAxis("--y", options.y.value_or("accuracy"), CurveAxesY()));
  TESSERA_RETURN_IF_ERROR(CheckLabels(options, options.reports.size(), "reports"));
  std::vector<Curve> curves;
  std::vector<std::string> labels;
  std::map<std::string, int> uses;
  for (const std::string& path : options.reports) {
    TESSERA_ASSIGN_OR_RETURN(const v1::JobStatus status, ReadReport(path));
    curves.push_back(CurveOf(status));
    labels.push_back(absl::StrCat(status.job(), " (", status.method(), ")"));
    ++uses[labels.back()];
  }
  Drawing drawing;
  drawing.x.title = std::string(x.title);
  drawing.y.title = std::string(y.title);
  for (size_t i = 0; i < curves.size(); ++i) {
    std::string label = labels[i];
    if (!options.labels.empty()) {
      label = options.labels[i];
    } else if (uses[label] > 1) {
      absl::StrAppend(&label, " ", options.reports[i]);
    }
    TESSERA_ASSIGN_OR_RETURN(PlotLine line, LineOf(label, curves[i], x, y));
    drawing.lines.push_back(std::move(line));
  }
  return drawing;
}

// A table's lines. What its numbers are the flags say.
absl::StatusOr<Drawing> DrawTable(const PlotOptions& options) {
  TESSERA_ASSIGN_OR_RETURN(PlotTable table, ReadPlotTable(options.table));
  TESSERA_RETURN_IF_ERROR(CheckLabels(options, table.lines.size(), "lines"));
  Drawing drawing;
  drawing.x.title = options.x.value_or(table.x_title);
  drawing.y.title = options.y.value_or("");
  drawing.lines = std::move(table.lines);
  for (size_t i = 0; i < options.labels.size(); ++i) drawing.lines[i].label = options.labels[i];
  return drawing;
}

absl::StatusOr<Drawing> ReadDrawing(const PlotOptions& options) {
  if (options.reports.empty() == options.table.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("got ", Counted(options.reports.size(), "report"), " and ",
                     options.table.empty() ? "no" : "a", " --table, want reports or a table"));
  }
  TESSERA_ASSIGN_OR_RETURN(Drawing drawing,
                           options.table.empty() ? DrawReports(options) : DrawTable(options));
  drawing.x.logarithmic = options.log_x;
  drawing.y.logarithmic = options.log_y;
  return drawing;
}

absl::Status WritePlot(const PlotOptions& options) {
  std::vector<std::string> inputs = options.reports;
  if (!options.table.empty()) inputs.push_back(options.table);
  TESSERA_RETURN_IF_ERROR(CheckIsNoInput("--out", options.out_path, inputs));
  TESSERA_ASSIGN_OR_RETURN(const Drawing drawing, ReadDrawing(options));
  TESSERA_ASSIGN_OR_RETURN(std::string svg, PlotSvg(drawing.lines, drawing.x, drawing.y));
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
