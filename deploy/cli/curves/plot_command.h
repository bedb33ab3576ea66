// `tessera plot REPORT...`: the curves of jobs, from their reports, in one picture.
#ifndef TESSERA_DEPLOY_CLI_CURVES_PLOT_COMMAND_H_
#define TESSERA_DEPLOY_CLI_CURVES_PLOT_COMMAND_H_

#include <string>
#include <vector>

namespace tessera {

struct PlotOptions {
  std::vector<std::string> reports;
  // The names of axes (plot.h).
  std::string x = "seconds";
  std::string y = "accuracy";
  // What the legend calls the reports, in their order; empty: job and method, and the file where two have the same.
  std::vector<std::string> labels;
  // The file to write; empty: stdout.
  std::string out_path;
};

// Writes the picture. Returns the process's exit code; stderr says why it is not 0:
//   0  it was written
//   1  the file cannot be written
//   2  a report or a flag is wrong
int PlotReports(const PlotOptions& options);

}  // namespace tessera

#endif  // TESSERA_DEPLOY_CLI_CURVES_PLOT_COMMAND_H_
