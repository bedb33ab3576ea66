#include "worker/model/stage_kinds.h"

#include "common/layout/layers/layer_kinds.h"
#include "tests/worker/model/model_fixture.h"
#include "worker/model/plan.h"

namespace tessera {

TEST_CASE("every kind of layer has a kind of stage, and no other has", "[stages]") {
  CHECK(StageKinds().size() == LayerKinds().size());
  for (const LayerKind& layer : LayerKinds()) {
    int found = 0;
    for (const StageKind& stage : StageKinds()) found += stage.layer == layer.kind_case ? 1 : 0;
    CHECK(found == 1);
  }
}

TEST_CASE("the columns of a kind of stage agree with those of its layers", "[stages]") {
  for (const LayerKind& layer : LayerKinds()) {
    for (const StageKind& stage : StageKinds()) {
      if (stage.layer != layer.kind_case) continue;
      CAPTURE(stage.layer);
      const bool is_elementwise = layer.reads == LayerReads::kUnits || layer.join != nullptr;
      const bool keeps_shape = is_elementwise || layer.reads == LayerReads::kUnitsTogether;
      CHECK((keeps_shape || !(stage.forward_in_place || stage.backward_in_place)));
      // A stage that overwrites what it reads cannot read it again.
      CHECK((!stage.forward_in_place || !stage.backward_reads_x));
      CHECK((!stage.works_by_rows || stage.is_product));
      CHECK((!layer.reads_sparse || stage.works_by_rows));
      CHECK(stage.works_by_rows == (layer.reads == LayerReads::kFeatures));
    }
  }
}

TEST_CASE("units of an elementwise stage are evaluated by themselves, to the bit", "[stages]") {
  const auto cpu = Cpu();
  const NetworkPlan plan =
      *PlanOf(ModelOf("6 norm- relu linear:6 relu norm drop:0.5 gelu gelu:tanh tanh logistic silu "
                      "leaky:0.2 linear:2 softmax"));
  constexpr int64_t kRows = 5, kUnits = 6;
  std::vector<float> x(kRows * kUnits);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>((i * 7919) % 23) - 11;
  const std::vector<float> scale = {1, -2, 3, 0.5f, 4, -1}, shift = {0, 1, 2, -3, 4, 5};
  for (const StagePlan& each : plan.stages) {
    if (!each.is_elementwise() || each.is_off_in_evaluation()) continue;
    StageOptions options;
    if (each.weight >= 0) options.parameters = {scale.data(), shift.data()};
    const auto stage = *each.kind->make(each, options, *cpu);
    std::vector<float> whole(x.size()), constants(each.constants());
    std::vector<double> sums(3 * kUnits);
    const auto calibrate = [&](const UnitColumns& columns, const float* from, float* to) {
      if (each.constants() == 0) return;
      stage->AddToSums(columns, /*is_first=*/true, from, sums.data());
      stage->FindConstants(columns, sums.data(), to);
    };
    calibrate({{kRows, kUnits}, 0}, x.data(), constants.data());
    const float* const from = x.data();
    stage->Evaluate(kRows, {&from, 1}, constants.data(), whole.data());
    for (int64_t first = 0; first < kUnits; first += 2) {
      std::vector<float> some(kRows * 2), own(constants.size());
      for (int64_t row = 0; row < kRows; ++row) {
        for (int64_t k = 0; k < 2; ++k) some[row * 2 + k] = x[row * kUnits + first + k];
      }
      const UnitColumns columns{{kRows, 2}, first};
      calibrate(columns, some.data(), own.data());
      stage->EvaluateColumns(columns, some.data(), own.data(), some.data());
      for (int64_t row = 0; row < kRows; ++row) {
        for (int64_t k = 0; k < 2; ++k) {
          CHECK(some[row * 2 + k] == whole[row * kUnits + first + k]);
        }
      }
    }
  }
}

}  // namespace tessera
