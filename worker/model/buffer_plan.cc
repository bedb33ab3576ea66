#include "worker/model/buffer_plan.h"

#include <algorithm>
#include <numeric>

#include "common/base/check.h"

namespace tessera {
namespace {

// Buffers of which each is in use or free.
class Pool {
 public:
  explicit Pool(std::vector<int64_t>* widths) : widths_(*widths) {}

  // The free buffer that fits best, or else the widest free one, widened, or else a new one.
  int Take(int64_t width) {
    int best = kNoBuffer;
    for (const int buffer : free_) {
      if (best == kNoBuffer || IsBetter(widths_[buffer], widths_[best], width)) best = buffer;
    }
    if (best == kNoBuffer) {
      widths_.push_back(width);
      return static_cast<int>(widths_.size()) - 1;
    }
    free_.erase(std::find(free_.begin(), free_.end(), best));
    widths_[best] = std::max(widths_[best], width);
    return best;
  }
  void Free(int buffer) { free_.push_back(buffer); }

 private:
  static bool IsBetter(int64_t a, int64_t b, int64_t wanted) {
    if ((a >= wanted) != (b >= wanted)) return a >= wanted;
    return a >= wanted ? a < b : a > b;
  }

  std::vector<int64_t>& widths_;
  std::vector<int> free_;
};

std::vector<std::vector<int>> ReadersOf(absl::Span<const GraphNode> nodes) {
  std::vector<std::vector<int>> readers(nodes.size());
  for (size_t i = 0; i < nodes.size(); ++i) {
    TESSERA_CHECK(!nodes[i].reads.empty());
    for (const int read : nodes[i].reads) {
      TESSERA_CHECK(read == kNetworkInput || (read >= 0 && read < static_cast<int>(i)));
      if (read != kNetworkInput) readers[read].push_back(static_cast<int>(i));
    }
  }
  return readers;
}

}  // namespace

ForwardBuffers PlanForward(absl::Span<const GraphNode> nodes, int64_t input_width) {
  const int count = static_cast<int>(nodes.size());
  // By value, the network's input first: the last node that reads it, itself or as the output of an identity.
  std::vector<int> last_reader(count + 1, -1);
  for (int i = count - 1; i >= 0; --i) {
    if (i == count - 1) last_reader[i + 1] = count;
    for (const int read : nodes[i].reads) {
      const int until = nodes[i].is_identity ? last_reader[i + 1] : i;
      last_reader[read + 1] = std::max(last_reader[read + 1], until);
    }
  }
  ForwardBuffers plan;
  Pool pool(&plan.widths);
  std::vector<int> used_until;  // by buffer
  const auto put = [&](int buffer, int until) {
    used_until.resize(plan.widths.size(), -1);
    used_until[buffer] = until;
    return buffer;
  };
  if (input_width > 0) plan.input = put(pool.Take(input_width), last_reader[0]);
  for (int i = 0; i < count; ++i) {
    const GraphNode& node = nodes[i];
    const int first = node.reads[0] == kNetworkInput ? plan.input : plan.outputs[node.reads[0]];
    if (node.is_identity) {
      plan.outputs.push_back(first);
    } else if (node.in_place && first != kNetworkInput && used_until[first] == i) {
      plan.outputs.push_back(put(first, last_reader[i + 1]));
    } else {
      plan.outputs.push_back(put(pool.Take(node.width), last_reader[i + 1]));
    }
    for (size_t buffer = 0; buffer < used_until.size(); ++buffer) {
      if (used_until[buffer] == i) pool.Free(static_cast<int>(buffer));
    }
  }
  return plan;
}

TrainingBuffers PlanTraining(absl::Span<const GraphNode> nodes, const TrainingWishes& wishes) {
  const int count = static_cast<int>(nodes.size());
  // The forward pass of node i is at time i, the loss at `count`, and the backward pass of i at 2 * count - i.
  const auto backward_time = [&](int i) { return 2 * count - i; };
  const std::vector<std::vector<int>> readers = ReadersOf(nodes);
  std::vector<bool> passes(count);  // its output's gradient is wanted
  const auto wants = [&](int read) {
    return read == kNetworkInput ? wishes.input_gradient_width > 0 : bool{passes[read]};
  };
  for (int i = 0; i < count; ++i) {
    const std::vector<int>& reads = nodes[i].reads;
    passes[i] = nodes[i].learns || std::any_of(reads.begin(), reads.end(), wants);
  }

  // By node: the node whose buffer its output is in, until when that is used, and whether a backward pass will look at
  // the signs of what is in it.
  std::vector<int> holder(count);
  std::vector<int> used_until(count, -1);
  std::vector<bool> keeps_signs(count, false);
  for (int i = 0; i < count; ++i) {
    const int first = nodes[i].reads[0];
    const bool overwrites =
        nodes[i].in_place && first != kNetworkInput && readers[first].size() == 1 &&
        !(passes[first] && nodes[first].backward_reads_y && nodes[first].needs_own_y) &&
        (nodes[i].keeps_signs || !keeps_signs[holder[first]]);
    holder[i] = overwrites ? holder[first] : i;
    if (passes[i] && nodes[i].backward_reads_y) keeps_signs[holder[i]] = true;
    int until = i;
    if (i == count - 1) until = wishes.keeps_output ? backward_time(-1) : count;
    for (const int reader : readers[i]) {
      const bool again = passes[reader] && nodes[reader].backward_reads_x;
      until = std::max(until, again ? backward_time(reader) : reader);
    }
    if (passes[i] && nodes[i].backward_reads_y) until = std::max(until, backward_time(i));
    used_until[holder[i]] = std::max(used_until[holder[i]], until);
  }

  TrainingBuffers plan;
  Pool pool(&plan.widths);
  plan.outputs.assign(count, kNoBuffer);
  const auto free_outputs = [&](int time) {
    for (int i = 0; i < count; ++i) {
      if (holder[i] == i && used_until[i] == time) pool.Free(plan.outputs[i]);
    }
  };
  for (int i = 0; i < count; ++i) {
    plan.outputs[i] = holder[i] == i ? pool.Take(nodes[i].width) : plan.outputs[holder[i]];
    free_outputs(i);
  }
  if (wishes.input_gradient_width > 0) {
    plan.input_gradient = static_cast<int>(plan.widths.size());
    plan.widths.push_back(wishes.input_gradient_width);
  }
  plan.gradients.assign(count, kNoBuffer);
  if (count > 0 && passes[count - 1]) plan.gradients[count - 1] = pool.Take(nodes[count - 1].width);
  free_outputs(count);
  plan.input_gradients.resize(count);
  bool has_input_gradient = false;
  for (int i = count - 1; i >= 0; --i) {
    const GraphNode& node = nodes[i];
    plan.input_gradients[i].resize(node.reads.size());
    // An output that nobody reads has no gradient, and so the nodes in front of it have none from it.
    const bool is_reached = plan.gradients[i] != kNoBuffer;
    bool is_passed_on = false;
    std::vector<int> parts;
    for (size_t k = 0; is_reached && k < node.reads.size(); ++k) {
      const int read = node.reads[k];
      if (!wants(read)) continue;
      TrainingBuffers::InputGradient& to = plan.input_gradients[i][k];
      to.adds = read == kNetworkInput ? has_input_gradient : plan.gradients[read] != kNoBuffer;
      const int64_t width = read == kNetworkInput ? wishes.input_gradient_width : nodes[read].width;
      if (to.adds) {
        to.buffer = pool.Take(width);
        parts.push_back(to.buffer);
      } else if (read == kNetworkInput) {
        to.buffer = plan.input_gradient;
        has_input_gradient = true;
      } else {
        const bool passes_on = k == 0 && node.backward_in_place;
        is_passed_on = is_passed_on || passes_on;
        to.buffer = passes_on ? plan.gradients[i] : pool.Take(width);
        plan.gradients[read] = to.buffer;
      }
    }
    for (const int part : parts) pool.Free(part);
    if (is_reached && !is_passed_on) pool.Free(plan.gradients[i]);
    free_outputs(backward_time(i));
  }
  return plan;
}

std::vector<int> ShareBuffers(const std::vector<int64_t>& buffers, std::vector<int64_t>* places) {
  const auto widest_first = [](const std::vector<int64_t>& widths) {
    std::vector<int> order(widths.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(),
                     [&](int a, int b) { return widths[a] > widths[b]; });
    return order;
  };
  if (places->size() < buffers.size()) places->resize(buffers.size(), 0);
  const std::vector<int> from = widest_first(buffers);
  const std::vector<int> to = widest_first(*places);
  std::vector<int> place_of(buffers.size());
  for (size_t i = 0; i < from.size(); ++i) {
    place_of[from[i]] = to[i];
    (*places)[to[i]] = std::max((*places)[to[i]], buffers[from[i]]);
  }
  return place_of;
}

}  // namespace tessera
