#include "server/monitor/metric_set.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

#include "tests/server/monitor/exposition.h"

namespace tessera {
namespace {

TEST_CASE("all values of a name stand together, whatever came in between", "[monitor]") {
  MetricSet set;
  set.Gauge("tessera_a", "A.", 1, {{"rank", "0"}});
  set.Counter("tessera_b_total", "B.", 2);
  set.Gauge("tessera_a", "A.", 3, {{"rank", "1"}});
  const auto families = set.Take();
  REQUIRE(families.size() == 2);
  CHECK(families[0].metric.size() == 2);
  const Exposition text = Parse(TextOf(families));
  CHECK(text.errors.empty());
  CHECK(text.types ==
        std::map<std::string, std::string>{{"tessera_a", "gauge"}, {"tessera_b_total", "counter"}});
  CHECK(text.samples.at("tessera_a{rank=\"1\"}") == 3);
  CHECK(set.Take().empty());
}

TEST_CASE("no text breaks a line of the exposition", "[monitor]") {
  const std::string texts[] = {
      "quote \" backslash \\ line\nbreak",
      "ends with a backslash \\",
      "tab\tand\rreturn",
      std::string("a zero \0 and half \xe9", 19),
      "\xc3\xbc is whole",
      "",
      "# HELP not_a_comment x",
  };
  for (const std::string& text : texts) {
    MetricSet set;
    set.Gauge("tessera_a", "A.", 1, {{"name", text}, {"other", "x"}});
    const std::string written = TextOf(set.Take());
    INFO(written);
    const Exposition read = Parse(written);
    CHECK(read.errors.empty());
    CHECK(read.samples.size() == 1);
    CHECK(written.find('\0') == std::string::npos);
  }
  MetricSet set;
  set.Gauge("tessera_a", "A.", 1, {{"name", texts[0]}, {"other", texts[3]}});
  CHECK(
      Parse(TextOf(set.Take()))
          .has(
              R"(tessera_a{name="quote \" backslash \\ line\nbreak",other="a zero \\x00 and half \\xe9"})"));
}

TEST_CASE("counters are numbers, whatever a worker says of itself", "[monitor]") {
  MetricSet set;
  set.Counter("tessera_a_total", "A.", std::nan(""), {{"k", "nan"}});
  set.Counter("tessera_a_total", "A.", std::numeric_limits<double>::infinity(), {{"k", "inf"}});
  set.Counter("tessera_a_total", "A.", -1, {{"k", "less"}});
  for (const auto& [name, value] : Parse(TextOf(set.Take())).samples) CHECK(value == 0);
}

TEST_CASE("a gauge that is no number says so", "[monitor]") {
  MetricSet set;
  set.Gauge("tessera_loss", "Loss.", std::nan(""));
  const Exposition text = Parse(TextOf(set.Take()));
  CHECK(text.errors.empty());
  CHECK(std::isnan(text.samples.at("tessera_loss")));
}

TEST_CASE("one of several states is 1", "[monitor]") {
  static constexpr absl::string_view kChoices[] = {"on", "off"};
  MetricSet set;
  set.OneHot("tessera_a", "A.", "state", kChoices, "off");
  set.OneHot("tessera_b", "B.", "state", kChoices, "none of them");
  const Exposition text = Parse(TextOf(set.Take()));
  CHECK(text.samples.at("tessera_a{state=\"on\"}") == 0);
  CHECK(text.samples.at("tessera_a{state=\"off\"}") == 1);
  CHECK(text.samples.at("tessera_b{state=\"off\"}") == 0);
}

TEST_CASE("a histogram's buckets hold all that is not above their bound", "[monitor]") {
  std::vector<uint64_t> counts(65);
  for (size_t i = 0; i < counts.size(); ++i) counts[i] = 1;
  counts[64] = 10;
  MetricSet set;
  set.Histogram("tessera_late_versions", "L.", counts, 5000);
  const Exposition text = Parse(TextOf(set.Take()));
  CHECK(text.errors.empty());
  CHECK(text.types.at("tessera_late_versions") == "histogram");
  CHECK(text.samples.at("tessera_late_versions_bucket{le=\"0\"}") == 1);
  CHECK(text.samples.at("tessera_late_versions_bucket{le=\"6\"}") == 7);
  CHECK(text.samples.at("tessera_late_versions_bucket{le=\"63\"}") == 64);
  CHECK(text.samples.at("tessera_late_versions_bucket{le=\"+Inf\"}") == 74);
  CHECK(text.samples.at("tessera_late_versions_count") == 74);
  CHECK(text.samples.at("tessera_late_versions_sum") == 5000);
}

TEST_CASE("a histogram of nothing has its buckets, with nothing in them", "[monitor]") {
  MetricSet set;
  set.Histogram("tessera_late_versions", "L.", {}, 0);
  const Exposition text = Parse(TextOf(set.Take()));
  CHECK(text.samples.at("tessera_late_versions_bucket{le=\"+Inf\"}") == 0);
  CHECK(text.samples.at("tessera_late_versions_count") == 0);
}

}  // namespace
}  // namespace tessera
