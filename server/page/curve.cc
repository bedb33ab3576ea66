#include "server/page/curve.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "server/page/html.h"

namespace tessera {
namespace {

// Sizes of a curve's drawing, in the units of its SVG view box.
constexpr double kWidth = 320;
constexpr double kHeight = 96;
constexpr double kMargin = 3;

struct Range {
  double low = std::numeric_limits<double>::infinity();
  double high = -std::numeric_limits<double>::infinity();

  void Add(double value) {
    low = std::min(low, value);
    high = std::max(high, value);
  }
  // Where the value lies, from 0 to 1.
  double Share(double value) const { return high > low ? (value - low) / (high - low) : 0.5; }
};

// Those that are drawn: finite ones, evenly chosen, the last one always.
std::vector<CurvePoint> Drawn(const std::vector<CurvePoint>& points) {
  std::vector<CurvePoint> finite;
  for (const CurvePoint& point : points) {
    if (std::isfinite(point.x) && std::isfinite(point.y)) finite.push_back(point);
  }
  if (finite.size() <= kCurvePointsMax) return finite;
  std::vector<CurvePoint> drawn;
  for (size_t i = 0; i < kCurvePointsMax; ++i) {
    drawn.push_back(finite[i * (finite.size() - 1) / (kCurvePointsMax - 1)]);
  }
  return drawn;
}

std::string Path(const std::vector<CurvePoint>& points, const Range& x, const Range& y) {
  std::string path;
  for (const CurvePoint& point : points) {
    absl::StrAppendFormat(&path, "%s%.1f %.1f", path.empty() ? "M" : "L",
                          kMargin + x.Share(point.x) * (kWidth - 2 * kMargin),
                          kHeight - kMargin - y.Share(point.y) * (kHeight - 2 * kMargin));
  }
  return path;
}

}  // namespace

std::string CurveHtml(const Curve& curve) {
  Range x, y;
  if (curve.from_zero) y.Add(0);
  std::vector<std::vector<CurvePoint>> drawn;
  for (const CurveLine& line : curve.lines) {
    drawn.push_back(Drawn(line.points));
    for (const CurvePoint& point : drawn.back()) {
      x.Add(point.x);
      y.Add(point.y);
    }
  }
  if (!(x.low <= x.high)) return "";
  std::string paths, values, words;
  for (size_t i = 0; i < drawn.size() && i < kCurveLinesMax; ++i) {
    if (drawn[i].empty()) continue;
    const CurvePoint& last = drawn[i].back();
    const std::string name = Escaped(curve.lines[i].name);
    absl::StrAppend(&paths, "<path class=\"l", i, "\" d=\"", Path(drawn[i], x, y), "\"/>");
    // A line of one point is a dot, which no path draws.
    absl::StrAppendFormat(&paths, "<circle class=\"l%d\" cx=\"%.1f\" cy=\"%.1f\" r=\"2.5\"/>", i,
                          kMargin + x.Share(last.x) * (kWidth - 2 * kMargin),
                          kHeight - kMargin - y.Share(last.y) * (kHeight - 2 * kMargin));
    absl::StrAppend(&values, "<span class=\"v l", i, "\">",
                    curve.lines.size() > 1 ? absl::StrCat(name, " ") : "", "<b>",
                    Escaped(curve.show_y(last.y)), "</b></span> ");
    absl::StrAppend(&words, ", ", name, " ", Escaped(curve.show_y(last.y)));
  }
  return absl::StrCat("<figure><figcaption>", Escaped(curve.title), " ", values,
                      "</figcaption><svg viewBox=\"0 0 ", kWidth, " ", kHeight,
                      "\" preserveAspectRatio=\"none\" role=\"img\" aria-label=\"",
                      Escaped(curve.title), words, "\">", paths, "</svg><div class=\"axis\"><span>",
                      Escaped(curve.show_y(y.low)), " to ", Escaped(curve.show_y(y.high)),
                      "</span><span>", Escaped(curve.show_x(x.low)), " to ",
                      Escaped(curve.show_x(x.high)), "</span></div></figure>");
}

}  // namespace tessera
