// What a job's evaluations are drawn over, and what of them is drawn.
#ifndef TESSERA_DEPLOY_CLI_CURVES_CURVE_AXES_H_
#define TESSERA_DEPLOY_CLI_CURVES_CURVE_AXES_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "deploy/cli/curves/curve.h"
#include "deploy/cli/curves/plot.h"

namespace tessera {

// What an axis may show.
struct CurveAxis {
  // The word of the flag.
  absl::string_view name;
  // What stands beside the axis.
  absl::string_view title;
  // Its number in a point.
  double (*value)(const CurvePoint& point);
};

// The axes, in the order in which messages name them.
std::vector<CurveAxis> CurveAxesX();
std::vector<CurveAxis> CurveAxesY();

// The curve on these axes.
//   kInvalidArgument  no evaluation has a number on both; the message says what the curve has
absl::StatusOr<PlotLine> LineOf(const std::string& label, const Curve& curve, const CurveAxis& x,
                                const CurveAxis& y);

}  // namespace tessera

#endif  // TESSERA_DEPLOY_CLI_CURVES_CURVE_AXES_H_
