// Whoever names a metric names one that there is: the dashboard, the alerts, the tables in docs/operating.
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>
#include <string>

#include "server/monitor/status_metrics.h"
#include "tests/server/monitor/exposition.h"
#include "tests/server/monitor/whole_status.h"

namespace tessera {
namespace {

using Json = nlohmann::json;
using Names = std::set<std::string>;

std::string TextOfFile(const std::string& path) {
  std::ifstream file(path);
  INFO(path);
  REQUIRE(file);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Of metrics as queries have them: a histogram's are those of its samples.
Names Queried() {
  const Exposition text = Parse(TextOf(MetricsOf(WholeStatus(), "digits")));
  Names names;
  for (const auto& [name, type] : text.types) {
    if (type != "histogram") names.insert(name);
    if (type != "histogram") continue;
    for (const char* end : {"_bucket", "_sum", "_count"}) names.insert(name + end);
  }
  return names;
}

Names MentionedIn(const std::string& text) {
  static const std::regex kName(R"(\btessera_[a-z0-9_]+)");
  return {std::sregex_token_iterator(text.begin(), text.end(), kName), {}};
}

Names Beyond(const Names& mentioned, const Names& known) {
  Names result;
  std::set_difference(mentioned.begin(), mentioned.end(), known.begin(), known.end(),
                      std::inserter(result, result.end()));
  return result;
}

// Labels in braces or behind by, on and group_left, and what they are.
Names LabelsIn(const std::string& expression) {
  static const std::regex kMatcher("([a-z_]+)(=~|!=|=)\"");
  static const std::regex kGrouping(R"(\b(by|on) ?\(([a-z_, ]*)\))");
  Names result;
  for (std::sregex_iterator it(expression.begin(), expression.end(), kMatcher), end; it != end;
       ++it) {
    result.insert((*it)[1]);
  }
  for (std::sregex_iterator it(expression.begin(), expression.end(), kGrouping), end; it != end;
       ++it) {
    result.insert((*it)[2]);
  }
  return result;
}

const Names kLabels = {"instance", "job_name", "direction", "le",   "phase",
                       "rank",     "server",   "shard",     "state"};

TEST_CASE("alerts are rules as Prometheus reads them, and ask for metrics that there are",
          "[monitor]") {
  const YAML::Node file = YAML::Load(TextOfFile("deploy/dashboards/alerts.yaml"));
  REQUIRE(file["groups"].IsSequence());
  Names alerts, mentioned;
  for (const YAML::Node& group : file["groups"]) {
    CHECK(!group["name"].as<std::string>().empty());
    for (const YAML::Node& rule : group["rules"]) {
      const auto name = rule["alert"].as<std::string>();
      INFO(name);
      CHECK(alerts.insert(name).second);
      for (const auto& entry : rule) {
        const Names known = {"alert", "expr", "for", "labels", "annotations"};
        CHECK(known.count(entry.first.as<std::string>()) == 1);
      }
      const auto expression = rule["expr"].as<std::string>();
      CHECK(!MentionedIn(expression).empty());
      CHECK(Beyond(MentionedIn(expression), Queried()) == Names());
      CHECK(Beyond(LabelsIn(expression), kLabels) == Names());
      if (rule["for"]) {
        CHECK(std::regex_match(rule["for"].as<std::string>(), std::regex("[0-9]+[smh]")));
      }
      const auto severity = rule["labels"]["severity"].as<std::string>();
      CHECK((severity == "warning" || severity == "critical"));
      CHECK(!rule["annotations"]["summary"].as<std::string>().empty());
      const auto description = rule["annotations"]["description"].as<std::string>();
      CHECK(!description.empty());
      CHECK(Beyond(MentionedIn(description), Queried()) == Names());
    }
  }
  // What the documentation promises.
  const std::string docs = TextOfFile("docs/operating/metrics.md");
  for (const std::string& name : alerts) {
    INFO(name);
    CHECK(docs.find("`" + name + "`") != std::string::npos);
  }
  CHECK(alerts.size() >= 10);
}

TEST_CASE("every panel of the dashboard asks for metrics that there are, of one server",
          "[monitor]") {
  const Json dashboard = Json::parse(TextOfFile("deploy/dashboards/job.json"));
  int queries = 0;
  std::set<int> ids;
  for (const Json& panel : dashboard["panels"]) {
    INFO(panel["title"]);
    CHECK(ids.insert(panel["id"].get<int>()).second);
    CHECK(panel["gridPos"]["x"].get<int>() + panel["gridPos"]["w"].get<int>() <= 24);
    if (panel["type"] == "row") continue;
    CHECK(!panel["targets"].empty());
    for (const Json& target : panel["targets"]) {
      const std::string expression = target["expr"];
      INFO(expression);
      ++queries;
      CHECK(Beyond(MentionedIn(expression), Queried()) == Names());
      CHECK(!MentionedIn(expression).empty());
      CHECK(Beyond(LabelsIn(expression), kLabels) == Names());
      CHECK(expression.find("instance=\"$instance\"") != std::string::npos);
      CHECK(std::count(expression.begin(), expression.end(), '(') ==
            std::count(expression.begin(), expression.end(), ')'));
    }
  }
  CHECK(queries > 40);
  // Its variables and annotations, too.
  CHECK(Beyond(MentionedIn(dashboard.dump()), Queried()) == Names());
}

TEST_CASE("the table of metrics in the documentation has all of them and no other", "[monitor]") {
  const std::string docs = TextOfFile("docs/operating/reference/metrics.md");
  static const std::regex kRow(R"(\n\| `(tessera_[a-z0-9_]+)(\{([a-z_, ]+)\})?` \|)"
                               R"( (gauge|counter|histogram) \| [^|]+ \|)");
  std::map<std::string, std::string> documented;
  for (std::sregex_iterator it(docs.begin(), docs.end(), kRow), end; it != end; ++it) {
    INFO((*it)[1]);
    CHECK(documented.emplace((*it)[1], (*it)[4]).second);
  }
  CHECK(documented == Parse(TextOf(MetricsOf(WholeStatus(), "digits"))).types);
}

}  // namespace
}  // namespace tessera
