// `tessera plot REPORT...`: the curves of jobs, from their reports, in one picture; or `tessera plot --table FILE`: the
// lines of a table.
#ifndef TESSERA_DEPLOY_CLI_CURVES_PLOT_COMMAND_H_
#define TESSERA_DEPLOY_CLI_CURVES_PLOT_COMMAND_H_

#include <optional>
#include <string>
#include <vector>

namespace tessera {

struct PlotOptions {
  std::vector<std::string> reports;
  // In their place a table (plot_table.h); empty: none.
  std::string table;
  // Of reports the names of axes (curve_axes.h), seconds and accuracy where they are absent; of a table the axes'
  // titles, its own and none.
  std::optional<std::string> x, y;
  bool log_x = false;
  bool log_y = false;
  // What the legend calls the lines, in their order; empty: job and method, and the file where two have the same, or
  // as the table calls them.
  std::vector<std::string> labels;
  // The file to write; empty: stdout.
  std::string out_path;
};

// Writes the picture. Returns the process's exit code; stderr says why it is not 0:
//   0  it was written
//   1  the file cannot be written
//   2  a report, the table or a flag is wrong
int PlotReports(const PlotOptions& options);

}  // namespace tessera

#endif  // TESSERA_DEPLOY_CLI_CURVES_PLOT_COMMAND_H_
