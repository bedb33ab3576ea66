#include "deploy/cli/curves/plot_table.h"

#include <catch2/catch.hpp>
#include <cmath>

namespace tessera {
namespace {

TEST_CASE("a table's columns behind the first are lines over it", "[cli][plot]") {
  const auto table =
      ParsePlotTable("# made by hand\nworkers, ours,theirs\n1,2.5,\n\n 4 , 1e3, nan\r\n8,-1,3\n");
  REQUIRE(table.ok());
  CHECK(table->x_title == "workers");
  REQUIRE(table->lines.size() == 2);
  CHECK(table->lines[0].label == "ours");
  CHECK(table->lines[1].label == "theirs");
  REQUIRE(table->lines[0].points.size() == 3);
  CHECK(table->lines[0].points[1].x == 4);
  CHECK(table->lines[0].points[1].y == 1000);
  CHECK(table->lines[0].points[2].y == -1);
  // What is empty, or no number, is a gap.
  CHECK(std::isnan(table->lines[1].points[0].y));
  CHECK(std::isnan(table->lines[1].points[1].y));
  CHECK(table->lines[1].points[2].y == 3);
}

TEST_CASE("what is no table is refused with its line", "[cli][plot]") {
  const auto error = [](const char* text) {
    return std::string(ParsePlotTable(text).status().message());
  };
  CHECK(error("") ==
        "line 1: got nothing, want a title of x and the labels of lines, with commas between them");
  CHECK(error("#\nalone\n1\n") ==
        "line 2: got \"alone\", want a title of x and the labels of lines, with commas between "
        "them");
  CHECK(error("x,y\n1,2\n1,2,3\n") == "line 3: got 3 fields, want 2 as in the line of titles");
  CHECK(error("x,y\n1,\"2\"\n") == "line 2: got \"\"2\"\", want a number, or nothing for a gap");
  CHECK_THAT(std::string(ReadPlotTable("/nowhere.csv").status().message()),
             Catch::Contains("--table: got \"/nowhere.csv\", want a CSV file; No such file"));
}

}  // namespace
}  // namespace tessera
