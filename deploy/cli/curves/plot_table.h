// Numbers to draw that are no job's evaluations: a table in CSV.
//
//   table = title of x "," label ("," label)* line*
//   line  = x ("," y)*        a y for each label; an empty one, or "nan", is a gap in that label's line
//
// Fields have no quotes and no commas in them. Empty lines, and those that begin with "#", count for nothing.
#ifndef TESSERA_DEPLOY_CLI_CURVES_PLOT_TABLE_H_
#define TESSERA_DEPLOY_CLI_CURVES_PLOT_TABLE_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "deploy/cli/curves/plot.h"

namespace tessera {

struct PlotTable {
  std::string x_title;
  std::vector<PlotLine> lines;
};

// Reads a table's text. Errors begin with its line.
//   kInvalidArgument  it is no table
absl::StatusOr<PlotTable> ParsePlotTable(absl::string_view text);
// Reads the file at `path`.
//   kNotFound         there is no such file, or it cannot be read
//   kInvalidArgument  it is no table
absl::StatusOr<PlotTable> ReadPlotTable(const std::string& path);

}  // namespace tessera

#endif  // TESSERA_DEPLOY_CLI_CURVES_PLOT_TABLE_H_
