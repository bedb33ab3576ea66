#include "deploy/cli/curves/plot.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <string>

namespace tessera {
namespace {

PlotLine LineOf(const std::string& label, const std::vector<double>& accuracies) {
  PlotLine line;
  line.label = label;
  for (const double accuracy : accuracies) {
    CurvePoint point;
    point.seconds = static_cast<double>(line.curve.points.size() + 1);
    point.test_accuracy = accuracy;
    point.test_loss = 1 - accuracy;
    point.perplexity = NAN;
    line.curve.points.push_back(point);
  }
  return line;
}

size_t CountOf(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

TEST_CASE("a plot has a line, a colour and a name for each report", "[cli][plot]") {
  const auto svg = PlotSvg({LineOf("one", {0.5, 0.8, 0.9}), LineOf("<two> & \"more\"", {0.4, 0.7})},
                           PlotAxesX()[0], PlotAxesY()[0]);
  REQUIRE(svg.ok());
  CHECK(CountOf(*svg, "<title>") == 2);
  CHECK(CountOf(*svg, "<circle") == 5);
  CHECK(CountOf(*svg, "class=\"line s0\"") == 2);  // in the picture and in the legend
  CHECK(CountOf(*svg, "class=\"line s1\"") == 2);
  CHECK(CountOf(*svg, "&lt;two&gt; &amp; &quot;more&quot;") == 2);
  CHECK(CountOf(*svg, "test accuracy") == 2);
  CHECK(CountOf(*svg, "prefers-color-scheme: dark") == 1);
  // No other file is asked for.
  CHECK(CountOf(*svg, "url(") == 0);
  CHECK(CountOf(*svg, "href") == 0);
  CHECK(CountOf(*svg, "http") == 1);  // The namespace is a name.
}

TEST_CASE("a long name is cut in the legend and whole at its line", "[cli][plot]") {
  const std::string name(300, 'x');
  const auto svg = PlotSvg({LineOf(name, {0.5})}, PlotAxesX()[0], PlotAxesY()[0]);
  REQUIRE(svg.ok());
  CHECK(CountOf(*svg, name) == 1);
  CHECK_THAT(*svg, Catch::Contains("x...</text>"));
}

TEST_CASE("the same reports give the same picture", "[cli][plot]") {
  const std::vector<PlotLine> lines = {LineOf("one", {0.5, 0.8, 0.9})};
  CHECK(*PlotSvg(lines, PlotAxesX()[0], PlotAxesY()[1]) ==
        *PlotSvg(lines, PlotAxesX()[0], PlotAxesY()[1]));
}

TEST_CASE("points lie where the axes have them, and a line has a gap where there is no number",
          "[cli][plot]") {
  // From 0 to 4 seconds, and from 0 to 1.
  const auto svg = PlotSvg({LineOf("one", {0, NAN, 0.5, 1})}, PlotAxesX()[0], PlotAxesY()[0]);
  REQUIRE(svg.ok());
  CHECK_THAT(*svg, Catch::Contains("d=\"M231.0 360.0M541.0 190.0L696.0 20.0\""));
}

TEST_CASE("a report without numbers for an axis is refused with the axes that it has",
          "[cli][plot]") {
  const auto svg = PlotSvg({LineOf("one", {0.5})}, PlotAxesX()[0], PlotAxesY()[2]);
  CHECK(svg.status().message() ==
        "\"one\" has no perplexity in 1 evaluation; want --y accuracy or loss, or another report");
  CHECK_FALSE(PlotSvg({}, PlotAxesX()[0], PlotAxesY()[0]).ok());
  const std::vector<PlotLine> many(kPlotLinesMax + 1, LineOf("one", {0.5}));
  CHECK_FALSE(PlotSvg(many, PlotAxesX()[0], PlotAxesY()[0]).ok());
}

TEST_CASE("curves of one value, of nothing but zero and of huge numbers are drawn", "[cli][plot]") {
  for (const double value : {0.0, 0.3, -2.0, 1e12, 1e-9}) {
    const auto svg = PlotSvg({LineOf("one", {value, value})}, PlotAxesX()[0], PlotAxesY()[0]);
    REQUIRE(svg.ok());
    CHECK(CountOf(*svg, "nan") == 0);
    CHECK(CountOf(*svg, "inf") == 0);
    CHECK(svg->size() < 10000);
  }
  PlotLine still = LineOf("one", {0.5});
  still.curve.points[0].seconds = 0;
  const auto svg = PlotSvg({still}, PlotAxesX()[0], PlotAxesY()[0]);
  REQUIRE(svg.ok());
  CHECK(CountOf(*svg, "nan") == 0);
}

}  // namespace
}  // namespace tessera
