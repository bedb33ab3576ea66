#include "server/control/status_fields.h"

#include <catch2/catch.hpp>
#include <set>
#include <string>

#include "nlohmann/json.hpp"
#include "server/control/report.h"

namespace tessera {
namespace {

// Every number that a field may look at is another one.
v1::JobStatus NumberedStatus() {
  v1::JobStatus status;
  status.set_wall_seconds(1.5);
  status.set_train_seconds(2.5);
  status.set_step(3);
  status.set_examples(4);
  status.set_members_joined(5);
  status.set_members_lost(6);
  status.set_partial_pushes(7);
  status.set_steps_planned(8);
  status.set_refused_pushes(9);
  status.set_residuals_lost(10);
  status.set_parameter_examples(11);
  status.set_generation(12);
  status.set_round(13);
  status.set_epoch(14.5);
  status.set_examples_per_second(15.5);
  status.set_rate_factor(16.5);
  status.set_parked_pulls(17);
  status.set_resting(18);
  status.set_lease_timeout_seconds(19.5);
  return status;
}

double AsDouble(const StatusField::Value& value) {
  return std::visit([](auto known) { return static_cast<double>(known); }, value);
}

TEST_CASE("every status field has a name of its own wherever it is shown, and a number of its own",
          "[control][report]") {
  std::set<std::string> keys, names;
  std::set<double> numbers;
  for (const StatusField& field : StatusFields()) {
    INFO((field.key != nullptr ? field.key : field.name));
    CHECK((field.section == StatusField::Section::kNone) == (field.key == nullptr));
    CHECK((field.metric == StatusField::Metric::kNone) == (field.name == nullptr));
    CHECK((field.metric == StatusField::Metric::kNone) == (field.help == nullptr));
    CHECK((field.key != nullptr || field.name != nullptr));
    if (field.key != nullptr) CHECK(keys.insert(field.key).second);
    if (field.name != nullptr) CHECK(names.insert(field.name).second);
    const auto value = field.value(NumberedStatus());
    REQUIRE(value.has_value());
    // The view tells counts, one or several.
    const bool has_words = field.words.place != StatusField::Words::Place::kNone;
    CHECK(has_words == (field.words.one != nullptr));
    CHECK(has_words == (field.words.several != nullptr));
    if (has_words) CHECK(std::holds_alternative<uint64_t>(*value));
    CHECK(numbers.insert(AsDouble(*value)).second);
  }
}

TEST_CASE("the report has every status field in its section, with its number",
          "[control][report]") {
  const v1::JobStatus status = NumberedStatus();
  const nlohmann::json report = nlohmann::json::parse(ReportJson(status));
  for (const StatusField& field : StatusFields()) {
    if (field.section == StatusField::Section::kNone) continue;
    INFO(field.key);
    const bool is_members = field.section == StatusField::Section::kMembers;
    const nlohmann::json& section = is_members ? report["members"] : report;
    REQUIRE(section.contains(field.key));
    CHECK(section[field.key] == AsDouble(*field.value(status)));
  }
}

TEST_CASE("a status field that a job has not is null in the report", "[control][report]") {
  const nlohmann::json report = nlohmann::json::parse(ReportJson({}));
  CHECK(report["planned_steps"].is_null());
  CHECK(report["residuals_lost"].is_null());
  CHECK(report["refused_pushes"] == 0);
}

}  // namespace
}  // namespace tessera
