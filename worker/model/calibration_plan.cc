#include "worker/model/calibration_plan.h"

#include <algorithm>
#include <numeric>

#include "worker/model/stage_kind.h"

namespace tessera {
namespace {

// By stage: batch norms on the longest way to its output.
std::vector<int> DepthsOf(const std::vector<StagePlan>& stages) {
  std::vector<int> depths;
  for (const StagePlan& stage : stages) {
    int depth = 0;
    for (const int read : stage.reads) {
      if (read != kNetworkInput) depth = std::max(depth, depths[read]);
    }
    depths.push_back(depth + (stage.constants() > 0 ? 1 : 0));
  }
  return depths;
}

// By stage: whether a batch norm reads its output, or something that follows from it.
std::vector<bool> NeededOf(const std::vector<StagePlan>& stages) {
  std::vector<bool> needed(stages.size(), false);
  // From the back: when a stage is reached all that read its output have said what they need.
  for (size_t i = stages.size(); i-- > 0;) {
    if (!needed[i] && stages[i].constants() == 0) continue;
    for (const int read : stages[i].reads) {
      if (read != kNetworkInput) needed[read] = true;
    }
  }
  return needed;
}

// The stages that calibration computes, or reads what they read, in its order. What they read comes before them.
std::vector<int> OrderOf(const std::vector<StagePlan>& stages, const std::vector<int>& depths,
                         const std::vector<bool>& needed) {
  std::vector<int> order;
  for (size_t i = 0; i < stages.size(); ++i) {
    if (needed[i] || stages[i].constants() > 0) order.push_back(static_cast<int>(i));
  }
  // Stable: within one depth the network's order stays, so that what a stage reads comes before it.
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return depths[a] < depths[b]; });
  return order;
}

// Fills in which buffers the outputs lie in.
void PlaceOutputs(const std::vector<StagePlan>& stages, const std::vector<int>& order,
                  CalibrationPlan* plan) {
  std::vector<int> place_of(stages.size(), kNetworkInput);
  std::vector<GraphNode> nodes;
  for (const int i : order) {
    GraphNode& node = nodes.emplace_back();
    for (const int read : stages[i].reads) {
      // The order has all that its stages read, as what a needed stage reads is needed too.
      node.reads.push_back(read == kNetworkInput ? kNetworkInput : place_of[read]);
    }
    node.width = stages[i].outputs;
    node.is_identity = stages[i].is_off_in_evaluation();
    node.in_place = stages[i].is_elementwise() || stages[i].kind->forward_in_place;
    place_of[i] = static_cast<int>(nodes.size()) - 1;
  }
  ForwardBuffers buffers = PlanForward(nodes);
  plan->outputs.assign(stages.size(), kNoBuffer);
  for (size_t n = 0; n < order.size(); ++n) plan->outputs[order[n]] = buffers.outputs[n];
  plan->places = std::move(buffers.places);
}

}  // namespace

int64_t CalibrationPass::kept_floats() const {
  return std::accumulate(kept.begin(), kept.end(), int64_t{0},
                         [](int64_t sum, const KeptValue& value) { return sum + value.width; });
}

int64_t CalibrationPlan::kept_floats_max() const {
  int64_t most = 0;
  for (const CalibrationPass& pass : passes) most = std::max(most, pass.kept_floats());
  return most;
}

CalibrationPlan CalibrationPlanOf(const std::vector<StagePlan>& stages) {
  CalibrationPlan plan;
  const std::vector<int> depths = DepthsOf(stages);
  const std::vector<bool> needed = NeededOf(stages);
  int passes = 0;
  for (size_t i = 0; i < stages.size(); ++i) {
    if (stages[i].constants() > 0) passes = std::max(passes, depths[i]);
  }
  if (passes == 0) return plan;
  const std::vector<int> order = OrderOf(stages, depths, needed);
  PlaceOutputs(stages, order, &plan);
  plan.passes.resize(passes);
  const auto buffer_of = [&](int read) {
    return read == kNetworkInput ? kNetworkInput : plan.outputs[read];
  };
  for (const int i : order) {
    const auto reads_in = [&](int pass) {
      for (const int read : stages[i].reads) {
        if (buffer_of(read) == kNetworkInput) plan.passes[pass].reads_input = true;
      }
    };
    if (stages[i].constants() > 0) {
      plan.passes[depths[i] - 1].norms.push_back(i);
      // A batch norm adds up what it reads in the pass before the one that normalises with it.
      reads_in(depths[i] - 1);
    }
    // One that nothing behind it needs is not computed.
    if (!needed[i]) continue;
    plan.passes[depths[i]].stages.push_back(i);
    if (!stages[i].is_off_in_evaluation()) reads_in(depths[i]);
  }
  // A value is read until the last pass that computes something from it.
  for (const int value : order) {
    if (!needed[value] || plan.outputs[value] == kNetworkInput) continue;
    if (stages[value].is_off_in_evaluation()) continue;  // Its input has the name.
    int last = 0;
    // An identity's output lies in its input's buffer. Whoever reads it under any of these names reads this value.
    std::vector<int> names = {value};
    for (size_t n = 0; n < names.size(); ++n) {
      for (const int i : order) {
        const std::vector<int>& reads = stages[i].reads;
        if (std::find(reads.begin(), reads.end(), names[n]) == reads.end()) continue;
        if (stages[i].is_off_in_evaluation()) {
          if (std::find(names.begin(), names.end(), i) == names.end()) names.push_back(i);
          continue;
        }
        // A batch norm that nothing needs reads its input for the statistics alone, which is one pass earlier.
        last = std::max(last, needed[i] ? depths[i] : depths[i] - 1);
      }
    }
    // Kept behind each pass until the last one that reads it, as a piece's pages are replaced behind every pass.
    for (int pass = depths[value]; pass < last; ++pass) {
      plan.passes[pass].kept.push_back({plan.outputs[value], stages[value].outputs});
    }
  }
  return plan;
}

}  // namespace tessera
