// A curve of the page: a few lines over time or steps as SVG that needs no script.
#ifndef TESSERA_SERVER_PAGE_CURVE_H_
#define TESSERA_SERVER_PAGE_CURVE_H_

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

namespace tessera {

// The most points of a line that are drawn; of more, some are left out.
constexpr size_t kCurvePointsMax = 160;
// The most lines of one curve, which styles have a colour for each of.
constexpr size_t kCurveLinesMax = 3;

struct CurvePoint {
  double x = 0;
  double y = 0;
};

struct CurveLine {
  // Shown where there are several lines.
  std::string name;
  // In the order of x. Those that are not finite are left out.
  std::vector<CurvePoint> points;
};

struct Curve {
  std::string title;
  // kCurveLinesMax at most. Lines without points are left out.
  std::vector<CurveLine> lines;
  // The lowest value that is drawn is 0.
  bool from_zero = false;
  std::function<std::string(double)> show_y;
  std::function<std::string(double)> show_x;
};

// The curve, with its newest values, lowest and highest; "": no line has a point.
std::string CurveHtml(const Curve& curve);

}  // namespace tessera

#endif  // TESSERA_SERVER_PAGE_CURVE_H_
