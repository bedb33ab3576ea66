#include "deploy/cli/curves/plot.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <string>

namespace tessera {
namespace {

const PlotAxis kSeconds{"seconds of training"}, kAccuracy{"test accuracy"};
const PlotAxis kLogX{"workers", true}, kLogY{"seconds", true};

PlotLine LineOf(const std::string& label, const std::vector<double>& values) {
  PlotLine line;
  line.label = label;
  for (const double value : values) {
    line.points.push_back({static_cast<double>(line.points.size() + 1), value});
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
                           kSeconds, kAccuracy);
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
  const auto svg = PlotSvg({LineOf(name, {0.5})}, kSeconds, kAccuracy);
  REQUIRE(svg.ok());
  CHECK(CountOf(*svg, name) == 1);
  CHECK_THAT(*svg, Catch::Contains("x...</text>"));
}

TEST_CASE("the same reports give the same picture", "[cli][plot]") {
  const std::vector<PlotLine> lines = {LineOf("one", {0.5, 0.8, 0.9})};
  CHECK(*PlotSvg(lines, kSeconds, kAccuracy) == *PlotSvg(lines, kSeconds, kAccuracy));
}

TEST_CASE("points lie where the axes have them, and a line has a gap where there is no number",
          "[cli][plot]") {
  // From 0 to 4 seconds, and from 0 to 1.
  const auto svg = PlotSvg({LineOf("one", {0, NAN, 0.5, 1})}, kSeconds, kAccuracy);
  REQUIRE(svg.ok());
  CHECK_THAT(*svg, Catch::Contains("d=\"M231.0 360.0M541.0 190.0L696.0 20.0\""));
}

TEST_CASE("no lines, too many and lines without a point are refused", "[cli][plot]") {
  CHECK_FALSE(PlotSvg({}, kSeconds, kAccuracy).ok());
  const std::vector<PlotLine> many(kPlotLinesMax + 1, LineOf("one", {0.5}));
  CHECK(PlotSvg(many, kSeconds, kAccuracy).status().message() ==
        "got 25 lines, want 1 to 24 in one picture");
  CHECK(PlotSvg({LineOf("one", {NAN})}, kSeconds, kAccuracy).status().message() ==
        "\"one\" has no point in 1, want one with numbers");
  CHECK(PlotSvg({LineOf("one", {0, -1})}, kSeconds, kLogY).status().message() ==
        "\"one\" has no point in 2, want one with numbers above 0 where an axis is logarithmic");
}

TEST_CASE("equal ratios are equally long on a logarithmic axis", "[cli][plot]") {
  // Marks from 1 to 100 on 340 pixels, and from 1 to 4 on 620.
  const auto svg = PlotSvg({LineOf("one", {1, 10, 0, 100})}, kLogX, kLogY);
  REQUIRE(svg.ok());
  CHECK_THAT(*svg, Catch::Contains("d=\"M76.0 360.0L343.0 190.0M610.0 20.0\""));
  for (const char* const mark : {">1<", ">2<", ">5<", ">10<", ">20<", ">50<", ">100<"}) {
    CHECK(CountOf(*svg, mark) > 0);
  }
}

TEST_CASE("many decades have a mark at some of them, up to the last one", "[cli][plot]") {
  const auto svg = PlotSvg({LineOf("one", {1e-9, 1, 3e10})}, kSeconds, kLogY);
  REQUIRE(svg.ok());
  CHECK_THAT(*svg, Catch::Contains(">1e-09<"));
  CHECK_THAT(*svg, Catch::Contains(">100G<"));
  CHECK(CountOf(*svg, "class=\"grid\"") <= 8);
}

TEST_CASE("a point without neighbours has a mark also among many that have none", "[cli][plot]") {
  std::vector<double> values(100, 0.5);
  CHECK(CountOf(*PlotSvg({LineOf("one", values)}, kSeconds, kAccuracy), "<circle") == 0);
  values[50] = values[52] = NAN;
  CHECK(CountOf(*PlotSvg({LineOf("one", values)}, kSeconds, kAccuracy), "<circle") == 1);
}

TEST_CASE("curves of one value, of nothing but zero and of huge numbers are drawn", "[cli][plot]") {
  for (const double value : {0.0, 0.3, -2.0, 1e12, 1e-9}) {
    const auto svg = PlotSvg({LineOf("one", {value, value})}, kSeconds, kAccuracy);
    REQUIRE(svg.ok());
    CHECK(CountOf(*svg, "nan") == 0);
    CHECK(CountOf(*svg, "inf") == 0);
    CHECK(svg->size() < 10000);
  }
  for (const double value : {3.0, 1.0, 1e12, 1e-9}) {
    const auto svg = PlotSvg({LineOf("one", {value})}, kLogX, kLogY);
    REQUIRE(svg.ok());
    CHECK(CountOf(*svg, "nan") == 0);
    CHECK(CountOf(*svg, "inf") == 0);
  }
  PlotLine still = LineOf("one", {0.5});
  still.points[0].x = 0;
  const auto svg = PlotSvg({still}, kSeconds, kAccuracy);
  REQUIRE(svg.ok());
  CHECK(CountOf(*svg, "nan") == 0);
}

}  // namespace
}  // namespace tessera
