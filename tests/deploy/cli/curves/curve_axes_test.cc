#include "deploy/cli/curves/curve_axes.h"

#include <catch2/catch.hpp>
#include <cmath>

namespace tessera {
namespace {

TEST_CASE("a curve's line has the numbers of both axes, and gaps", "[cli][plot]") {
  Curve curve;
  curve.points.resize(3);
  for (int i = 0; i < 3; ++i) {
    curve.points[i].seconds = i;
    curve.points[i].bytes = 100.0 * i;
    curve.points[i].test_loss = i == 1 ? NAN : 2.0 - i;
    curve.points[i].test_accuracy = curve.points[i].perplexity = NAN;
  }
  const auto line = LineOf("one", curve, CurveAxesX()[2], CurveAxesY()[1]);
  REQUIRE(line.ok());
  CHECK(line->label == "one");
  REQUIRE(line->points.size() == 3);
  CHECK(line->points[2].x == 200);
  CHECK(line->points[2].y == 0);
  CHECK(std::isnan(line->points[1].y));
}

TEST_CASE("a report without numbers for an axis is refused with the axes that it has",
          "[cli][plot]") {
  Curve curve;
  CHECK(LineOf("one", curve, CurveAxesX()[0], CurveAxesY()[0]).status().message() ==
        "\"one\" has no accuracy in 0 evaluations; want a report with evaluations, or another "
        "report");
  curve.points.resize(1);
  curve.points[0].perplexity = NAN;
  CHECK(LineOf("one", curve, CurveAxesX()[0], CurveAxesY()[2]).status().message() ==
        "\"one\" has no perplexity in 1 evaluation; want --y accuracy or loss, or another report");
}

}  // namespace
}  // namespace tessera
