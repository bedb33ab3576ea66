// Curves of several jobs as one picture, in SVG.
//
// The file needs nothing beside it: colours for light and dark themes are in its style sheet, and text is in the
// reader's own sans-serif font. The same curves give the same bytes.
#ifndef TESSERA_DEPLOY_CLI_CURVES_PLOT_H_
#define TESSERA_DEPLOY_CLI_CURVES_PLOT_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "deploy/cli/curves/curve.h"

namespace tessera {

// What an axis may show.
struct PlotAxis {
  // The word of the flag.
  absl::string_view name;
  // What stands beside the axis.
  absl::string_view title;
  // Its number in a point.
  double (*value)(const CurvePoint& point);
};

// The axes, in the order in which messages name them.
std::vector<PlotAxis> PlotAxesX();
std::vector<PlotAxis> PlotAxesY();

// One line of the picture.
struct PlotLine {
  // What the legend calls it.
  std::string label;
  Curve curve;
};

// At most so many lines: more are told apart by nobody.
constexpr int kPlotLinesMax = 24;

// Draws the lines; points without a number are left out, and a line ends before them and begins anew.
//   kInvalidArgument  there are no lines, or too many, or one has no number at all on this axis: which, and what it has
absl::StatusOr<std::string> PlotSvg(const std::vector<PlotLine>& lines, const PlotAxis& x,
                                    const PlotAxis& y);

}  // namespace tessera

#endif  // TESSERA_DEPLOY_CLI_CURVES_PLOT_H_
