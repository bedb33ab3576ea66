#include "deploy/cli/curves/curve_axes.h"

#include <algorithm>
#include <cmath>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/printable.h"

namespace tessera {
namespace {

bool IsThere(const CurvePoint& point, const CurveAxis& x, const CurveAxis& y) {
  return std::isfinite(x.value(point)) && std::isfinite(y.value(point));
}

}  // namespace

std::vector<CurveAxis> CurveAxesX() {
  return {{"seconds", "seconds of training", [](const CurvePoint& p) { return p.seconds; }},
          {"examples", "examples", [](const CurvePoint& p) { return p.examples; }},
          {"bytes", "bytes pulled and pushed", [](const CurvePoint& p) { return p.bytes; }},
          {"steps", "steps of each worker",
           [](const CurvePoint& p) { return static_cast<double>(p.step); }}};
}

std::vector<CurveAxis> CurveAxesY() {
  return {{"accuracy", "test accuracy", [](const CurvePoint& p) { return p.test_accuracy; }},
          {"loss", "test loss", [](const CurvePoint& p) { return p.test_loss; }},
          {"perplexity", "perplexity", [](const CurvePoint& p) { return p.perplexity; }}};
}

absl::StatusOr<PlotLine> LineOf(const std::string& label, const Curve& curve, const CurveAxis& x,
                                const CurveAxis& y) {
  const auto has = [&](const CurveAxis& axis) {
    return std::any_of(curve.points.begin(), curve.points.end(),
                       [&](const CurvePoint& point) { return IsThere(point, x, axis); });
  };
  if (!has(y)) {
    std::vector<absl::string_view> others;
    for (const CurveAxis& other : CurveAxesY()) {
      if (has(other)) others.push_back(other.name);
    }
    return absl::InvalidArgumentError(
        absl::StrCat("\"", ToPrintable(label), "\" has no ", y.name, " in ", curve.points.size(),
                     curve.points.size() == 1 ? " evaluation" : " evaluations",
                     others.empty() ? "; want a report with evaluations"
                                    : absl::StrCat("; want --y ", absl::StrJoin(others, " or ")),
                     ", or another report"));
  }
  PlotLine line;
  line.label = label;
  for (const CurvePoint& point : curve.points) {
    line.points.push_back({x.value(point), y.value(point)});
  }
  return line;
}

}  // namespace tessera
