// The passes of a calibration.
#include "worker/model/calibration_plan.h"

#include <catch2/catch.hpp>

#include "tests/worker/model/model_fixture.h"
#include "tests/worker/model/model_text.h"
#include "worker/model/plan.h"

namespace tessera {
namespace {

using Widths = std::vector<int64_t>;

CalibrationPlan PlanOfText(const std::string& text) {
  return CalibrationPlanOf(PlanOf(ModelOfText(text))->stages);
}

// By pass: the widths of what is kept behind it, in ascending order.
std::vector<Widths> KeptWidths(const CalibrationPlan& plan) {
  std::vector<Widths> all;
  for (const CalibrationPass& pass : plan.passes) {
    Widths& widths = all.emplace_back();
    for (const KeptValue& value : pass.kept) widths.push_back(value.width);
    std::sort(widths.begin(), widths.end());
  }
  return all;
}

}  // namespace

TEST_CASE("a chain has a pass for each batch norm, and keeps what the norm reads",
          "[calibration]") {
  const CalibrationPlan plan = CalibrationPlanOf(
      PlanOf(ModelOf("10 linear:20 norm relu drop:0.5 linear:8 relu norm linear:3 softmax"))
          ->stages);
  REQUIRE(plan.passes.size() == 2);
  CHECK(plan.passes[0].stages == std::vector<int>{0});
  CHECK(plan.passes[0].norms == std::vector<int>{1});
  CHECK(plan.passes[0].reads_input);
  // Neither the last norm nor what is behind it is computed.
  CHECK(plan.passes[1].stages == std::vector<int>{1, 2, 3, 4});
  CHECK(plan.passes[1].norms == std::vector<int>{5});
  CHECK_FALSE(plan.passes[1].reads_input);
  CHECK(KeptWidths(plan) == std::vector<Widths>{{20}, {}});
  CHECK(plan.kept_floats_max() == 20);
}

TEST_CASE("a model without batch norm has no passes", "[calibration]") {
  const CalibrationPlan plan =
      CalibrationPlanOf(PlanOf(ModelOf("10 linear:20 relu linear:3 softmax"))->stages);
  CHECK(plan.passes.empty());
  CHECK(plan.kept_floats_max() == 0);
}

TEST_CASE("a norm that reads the rows themselves has nothing kept for it", "[calibration]") {
  const CalibrationPlan plan =
      CalibrationPlanOf(PlanOf(ModelOf("10 drop:0.5 norm linear:4 norm softmax"))->stages);
  REQUIRE(plan.passes.size() == 2);
  CHECK(plan.passes[0].reads_input);
  CHECK(plan.passes[1].reads_input);
  CHECK(KeptWidths(plan) == std::vector<Widths>{{}, {}});
}

TEST_CASE("norms of a block's branches share a pass, and what goes round a branch is kept",
          "[calibration]") {
  const CalibrationPlan shared = PlanOfText(
      "{input: [8], layers: [{residual: {layers: [{linear: {units: 6}}, batch_norm, relu, "
      "{linear: {units: 5}}, batch_norm], shortcut: [{linear: {units: 5}}, batch_norm]}}, relu, "
      "{linear: {units: 4}}, batch_norm, {linear: {units: 3}}]}");
  REQUIRE(shared.passes.size() == 3);
  CHECK(shared.passes[0].norms.size() == 2);
  CHECK(shared.passes[1].norms.size() == 1);
  CHECK(shared.passes[2].norms.size() == 1);
  // Behind the first pass what both norms read; then the shortcut's output and what the second norm reads.
  CHECK(KeptWidths(shared) == std::vector<Widths>{{5, 6}, {5, 5}, {}});

  const CalibrationPlan identity = PlanOfText(
      "{input: [8], layers: [{linear: {units: 7}}, relu, {residual: {layers: [{linear: {units: "
      "6}}, batch_norm, relu, {linear: {units: 7}}, batch_norm]}}, relu, {linear: {units: 4}}, "
      "batch_norm, {linear: {units: 3}}]}");
  REQUIRE(identity.passes.size() == 3);
  CHECK(KeptWidths(identity) == std::vector<Widths>{{6, 7}, {7, 7}, {}});
}

TEST_CASE("a block around the rows themselves reads them once more", "[calibration]") {
  const CalibrationPlan plan = PlanOfText(
      "{input: [8], layers: [{residual: {layers: [{linear: {units: 6}}, batch_norm, {linear: "
      "{units: 8}}]}}, batch_norm, {linear: {units: 3}}]}");
  REQUIRE(plan.passes.size() == 2);
  CHECK(plan.passes[1].reads_input);
  CHECK(KeptWidths(plan) == std::vector<Widths>{{6}, {}});
}

}  // namespace tessera
