#include "worker/model/buffer_plan.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "common/base/check.h"

namespace tessera {
namespace {

// Where a buffer begins for any number of examples.
constexpr int64_t kFloatsPerCacheLine = 16;

// Hands out buffers, and knows from when until when each is used.
class Lifetimes {
 public:
  explicit Lifetimes(BufferPlaces* places) : places_(*places) {}

  int Take(int64_t width) {
    places_.widths.push_back(width);
    // A buffer that nobody frees is in use until the end, such as the network's output.
    uses_.push_back({now_++, kForEver});
    return static_cast<int>(uses_.size()) - 1;
  }
  void Free(int buffer) { uses_[buffer].end = now_++; }

  // Finds places in several ways, of which the one that takes the least room counts. To find the least room at all is
  // NP-hard (dynamic storage allocation), and for each of these ways there are networks for which it is the best.
  void Place() {
    std::vector<int> order(uses_.size());
    std::iota(order.begin(), order.end(), 0);
    const std::vector<int64_t>& widths = places_.widths;
    const auto length = [this](int i) { return uses_[i].end - uses_[i].begin; };
    places_.floats = std::numeric_limits<int64_t>::max();
    PlaceInSlots();
    PlaceInOrder(order);
    std::stable_sort(order.begin(), order.end(),
                     [&](int a, int b) { return uses_[a].end > uses_[b].end; });
    PlaceInOrder(order);
    std::stable_sort(order.begin(), order.end(),
                     [&](int a, int b) { return length(a) > length(b); });
    PlaceInOrder(order);
    std::stable_sort(order.begin(), order.end(),
                     [&](int a, int b) { return widths[a] > widths[b]; });
    PlaceInOrder(order);
  }

 private:
  static constexpr int64_t kForEver = std::numeric_limits<int64_t>::max();
  // Times count what is taken and freed.
  struct Use {
    int64_t begin = 0;
    int64_t end = 0;
  };

  // Every buffer goes where the gap is smallest, between those placed before it that are used while it is.
  void PlaceInOrder(const std::vector<int>& order) {
    std::vector<int64_t> offsets(uses_.size(), 0);
    std::vector<int> placed;  // by offset
    int64_t floats = 0;
    for (const int i : order) {
      // Buffers placed before are visited by offset: `end` is where those that are used at the same time end so far.
      int64_t best = -1, best_gap = kForEver, end = 0;
      for (const int other : placed) {
        if (uses_[other].begin >= uses_[i].end || uses_[i].begin >= uses_[other].end) continue;
        const int64_t gap = offsets[other] - end;
        if (gap >= Room(i) && gap < best_gap) {
          best = end;
          best_gap = gap;
        }
        end = std::max(end, offsets[other] + Room(other));
      }
      offsets[i] = best >= 0 ? best : end;
      floats = std::max(floats, offsets[i] + Room(i));
      const auto behind = std::upper_bound(placed.begin(), placed.end(), i,
                                           [&](int a, int b) { return offsets[a] < offsets[b]; });
      placed.insert(behind, i);
    }
    Keep(std::move(offsets), floats);
  }
  // Buffers take turns in slots that are side by side: each takes the free slot that fits best, or else the widest free
  // one, widened, or else a new one. A chain of layers is evaluated in two.
  void PlaceInSlots() {
    std::vector<int64_t> rooms;  // by slot
    std::vector<int> held;       // by slot: the buffer that was there last
    std::vector<int> slot_of;
    for (int i = 0; i < static_cast<int>(uses_.size()); ++i) {
      const int64_t wanted = Room(i);
      int best = -1;
      for (int slot = 0; slot < static_cast<int>(rooms.size()); ++slot) {
        if (uses_[held[slot]].end > uses_[i].begin) continue;
        if (best < 0 || FitsBetter(rooms[slot], rooms[best], wanted)) best = slot;
      }
      if (best < 0) {
        best = static_cast<int>(rooms.size());
        rooms.push_back(0);
        held.push_back(i);
      }
      rooms[best] = std::max(rooms[best], wanted);
      held[best] = i;
      slot_of.push_back(best);
    }
    std::vector<int64_t> begins = {0};
    for (const int64_t room : rooms) begins.push_back(begins.back() + room);
    std::vector<int64_t> offsets;
    for (const int slot : slot_of) offsets.push_back(begins[slot]);
    Keep(std::move(offsets), begins.back());
  }
  static bool FitsBetter(int64_t a, int64_t b, int64_t wanted) {
    if ((a >= wanted) != (b >= wanted)) return a >= wanted;
    return a >= wanted ? a < b : a > b;
  }
  void Keep(std::vector<int64_t> offsets, int64_t floats) {
    if (floats >= places_.floats) return;
    places_.floats = floats;
    places_.offsets = std::move(offsets);
  }
  // Whole lines of the cache, so that no two buffers share one.
  int64_t Room(int buffer) const {
    return (places_.widths[buffer] + kFloatsPerCacheLine - 1) / kFloatsPerCacheLine *
           kFloatsPerCacheLine;
  }

  BufferPlaces& places_;
  std::vector<Use> uses_;  // by buffer
  int64_t now_ = 0;
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
  // From the back, as an identity's output lives as long as what reads that.
  for (int i = count - 1; i >= 0; --i) {
    // The last node's output is read after the pass, by the loss or the caller.
    if (i == count - 1) last_reader[i + 1] = count;
    for (const int read : nodes[i].reads) {
      const int until = nodes[i].is_identity ? last_reader[i + 1] : i;
      last_reader[read + 1] = std::max(last_reader[read + 1], until);
    }
  }
  ForwardBuffers plan;
  Lifetimes buffers(&plan.places);
  std::vector<int> used_until;  // by buffer
  const auto put = [&](int buffer, int until) {
    used_until.resize(plan.places.widths.size(), -1);
    used_until[buffer] = until;
    return buffer;
  };
  if (input_width > 0) plan.input = put(buffers.Take(input_width), last_reader[0]);
  for (int i = 0; i < count; ++i) {
    const GraphNode& node = nodes[i];
    const int first = node.reads[0] == kNetworkInput ? plan.input : plan.outputs[node.reads[0]];
    // Only where this node is the last reader may its output take the place of what it reads.
    if (node.is_identity) {
      plan.outputs.push_back(first);
    } else if (node.in_place && first != kNetworkInput && used_until[first] == i) {
      plan.outputs.push_back(put(first, last_reader[i + 1]));
    } else {
      plan.outputs.push_back(put(buffers.Take(node.width), last_reader[i + 1]));
    }
    // What this node read last is free only now: its output must not lie in the place of an input, unless it works in
    // place.
    for (size_t buffer = 0; buffer < used_until.size(); ++buffer) {
      if (used_until[buffer] == i) buffers.Free(static_cast<int>(buffer));
    }
  }
  buffers.Place();
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
    // A node may write over what it reads first where nobody else reads that, and where no backward pass wants the
    // value that was there. Backward passes that want its signs alone permit nodes that keep the signs.
    const int first = nodes[i].reads[0];
    const bool overwrites =
        nodes[i].in_place && first != kNetworkInput && readers[first].size() == 1 &&
        !(passes[first] && nodes[first].backward_reads_y && nodes[first].needs_own_y) &&
        (nodes[i].keeps_signs || !keeps_signs[holder[first]]);
    holder[i] = overwrites ? holder[first] : i;
    if (passes[i] && nodes[i].backward_reads_y) keeps_signs[holder[i]] = true;
    int until = i;
    // The front of a model that is split has its output read until the gradient of it has come.
    if (i == count - 1) until = wishes.keeps_output ? backward_time(-1) : count;
    for (const int reader : readers[i]) {
      const bool again = passes[reader] && nodes[reader].backward_reads_x;
      until = std::max(until, again ? backward_time(reader) : reader);
    }
    if (passes[i] && nodes[i].backward_reads_y) until = std::max(until, backward_time(i));
    used_until[holder[i]] = std::max(used_until[holder[i]], until);
  }

  TrainingBuffers plan;
  Lifetimes buffers(&plan.places);
  // It is used from the beginning to the end, and beyond.
  if (wishes.input_gradient_width > 0) {
    plan.input_gradient = buffers.Take(wishes.input_gradient_width);
  }
  plan.outputs.assign(count, kNoBuffer);
  // Buffers that nodes share are freed once, by the node that they were taken for.
  const auto free_outputs = [&](int time) {
    for (int i = 0; i < count; ++i) {
      if (holder[i] == i && used_until[i] == time) buffers.Free(plan.outputs[i]);
    }
  };
  for (int i = 0; i < count; ++i) {
    plan.outputs[i] = holder[i] == i ? buffers.Take(nodes[i].width) : plan.outputs[holder[i]];
    free_outputs(i);
  }
  plan.gradients.assign(count, kNoBuffer);
  if (count > 0 && passes[count - 1]) {
    plan.gradients[count - 1] = buffers.Take(nodes[count - 1].width);
  }
  free_outputs(count);
  plan.input_gradients.resize(count);
  bool has_input_gradient = false;
  // The backward pass. A gradient's buffer is taken when the first part of it is written, and freed when the node that
  // made the value has read it.
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
      // Only the first reader, in the order of the backward pass, writes to the sum's place. Others write beside it.
      to.adds = read == kNetworkInput ? has_input_gradient : plan.gradients[read] != kNoBuffer;
      const int64_t width = read == kNetworkInput ? wishes.input_gradient_width : nodes[read].width;
      if (to.adds) {
        to.buffer = buffers.Take(width);
        parts.push_back(to.buffer);
      } else if (read == kNetworkInput) {
        to.buffer = plan.input_gradient;
        has_input_gradient = true;
      } else {
        const bool passes_on = k == 0 && node.backward_in_place;
        is_passed_on = is_passed_on || passes_on;
        to.buffer = passes_on ? plan.gradients[i] : buffers.Take(width);
        plan.gradients[read] = to.buffer;
      }
    }
    for (const int part : parts) buffers.Free(part);
    if (is_reached && !is_passed_on) buffers.Free(plan.gradients[i]);
    free_outputs(backward_time(i));
  }
  buffers.Place();
  return plan;
}

}  // namespace tessera
