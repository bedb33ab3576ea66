// Lines of several things as one picture, in SVG.
//
// The file needs nothing beside it: colours for light and dark themes are in its style sheet, and text is in the
// reader's own sans-serif font. The same lines give the same bytes.
#ifndef TESSERA_DEPLOY_CLI_CURVES_PLOT_H_
#define TESSERA_DEPLOY_CLI_CURVES_PLOT_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace tessera {

struct PlotAxis {
  // What stands beside the axis, with the unit.
  std::string title;
  // Whether equal ratios are equally long; values of 0 or less have no place on it then.
  bool logarithmic = false;
};

struct PlotPoint {
  double x = 0;
  double y = 0;
};

// One line of the picture.
struct PlotLine {
  // What the legend calls it.
  std::string label;
  // In the order in which they are joined. One that is not finite on both axes is left out, and the line ends before it
  // and begins anew.
  std::vector<PlotPoint> points;
};

// At most so many lines: more are told apart by nobody.
constexpr int kPlotLinesMax = 24;

// Draws the lines. A horizontal axis that is not logarithmic begins at 0.
//   kInvalidArgument  there are no lines, or too many, or one has no point that the axes have a place for
absl::StatusOr<std::string> PlotSvg(const std::vector<PlotLine>& lines, const PlotAxis& x,
                                    const PlotAxis& y);

}  // namespace tessera

#endif  // TESSERA_DEPLOY_CLI_CURVES_PLOT_H_
