#include "worker/model/buffer_plan.h"

#include <algorithm>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "catch2/catch.hpp"

namespace tessera {
namespace {

using Nodes = std::vector<GraphNode>;

// Buffers begin at multiples of so many floats.
constexpr int64_t kLine = 16;

// A node that multiplies with a weight: its backward pass reads what it read.
GraphNode Product(std::vector<int> reads, int64_t width) {
  GraphNode node;
  node.reads = std::move(reads);
  node.width = width;
  node.learns = true;
  node.backward_reads_x = true;
  return node;
}

GraphNode Relu(int read, int64_t width) {
  GraphNode node;
  node.reads = {read};
  node.width = width;
  node.in_place = true;
  node.backward_in_place = true;
  node.backward_reads_y = true;
  node.keeps_signs = true;
  return node;
}

// Adds what it reads. Its backward pass reads neither that nor its output.
GraphNode Join(std::vector<int> reads, int64_t width) {
  GraphNode node;
  node.reads = std::move(reads);
  node.width = width;
  return node;
}

// A machine whose buffers hold names of values. It runs a plan as the passes of a network do, and fails where a
// value is read that something else has overwritten, in its own buffer or in one that shares a place with it.
class Machine {
 public:
  Machine(const Nodes& nodes, const TrainingBuffers& plan) : nodes_(nodes), plan_(plan) {
    holds_.resize(plan.places.widths.size());
  }

  // Returns, by node, the order in which its readers gave their parts of the gradient of its output.
  std::vector<std::vector<int>> Train(bool keeps_output) {
    const int count = static_cast<int>(nodes_.size());
    for (int i = 0; i < count; ++i) {
      for (const int read : nodes_[i].reads) Reads(read);
      Write(plan_.outputs[i], Output(i), nodes_[i].width);
    }
    Reads(count - 1);
    if (plan_.gradients[count - 1] != kNoBuffer) {
      CHECK(plan_.gradients[count - 1] != plan_.outputs[count - 1]);
      Write(plan_.gradients[count - 1], Gradient(count - 1), nodes_[count - 1].width);
    }
    std::vector<std::vector<int>> parts(count + 1);
    for (int i = count - 1; i >= 0; --i) Backward(i, &parts);
    if (keeps_output) Reads(count - 1);
    return parts;
  }

 private:
  static std::string Output(int i) { return "y" + std::to_string(i); }
  static std::string Gradient(int i) { return "dy" + std::to_string(i); }

  void Write(int buffer, const std::string& value, int64_t width) {
    REQUIRE(buffer >= 0);
    const BufferPlaces& places = plan_.places;
    CHECK(places.widths[buffer] >= width);
    CHECK(places.offsets[buffer] + places.widths[buffer] <= places.floats);
    for (size_t i = 0; i < holds_.size(); ++i) {
      const bool is_apart = places.offsets[i] + places.widths[i] <= places.offsets[buffer] ||
                            places.offsets[buffer] + places.widths[buffer] <= places.offsets[i];
      if (!is_apart) holds_[i] = "something else";
    }
    holds_[buffer] = value;
  }
  // A node in place leaves its own value where the one was that it read.
  void Reads(int i) {
    if (i == kNetworkInput) return;
    CAPTURE(i);
    std::vector<bool> left(nodes_.size(), false);
    bool is_there = false;
    for (int k = i; k < static_cast<int>(nodes_.size()); ++k) {
      const GraphNode& node = nodes_[k];
      const int first = node.reads[0];
      left[k] = k == i || (node.in_place && first >= i && left[first] &&
                           plan_.outputs[k] == plan_.outputs[first]);
      is_there = is_there || (left[k] && holds_[plan_.outputs[i]] == Output(k));
    }
    CHECK(is_there);
  }
  // Whether all that was written over the output of node i kept its signs.
  bool SignsAreLeft(int i) const {
    int at = i;
    for (int k = i + 1; k < static_cast<int>(nodes_.size()); ++k) {
      if (holds_[plan_.outputs[i]] == Output(at)) return true;
      if (nodes_[k].reads[0] != at || plan_.outputs[k] != plan_.outputs[at]) continue;
      if (!nodes_[k].keeps_signs) return false;
      at = k;
    }
    return holds_[plan_.outputs[i]] == Output(at);
  }
  void Backward(int i, std::vector<std::vector<int>>* parts) {
    const GraphNode& node = nodes_[i];
    CAPTURE(i);
    if (plan_.gradients[i] == kNoBuffer) return;
    CHECK(holds_[plan_.gradients[i]] == Gradient(i));
    if (node.backward_reads_x) {
      for (const int read : node.reads) Reads(read);
    }
    if (node.backward_reads_y) {
      Reads(i);
      if (node.needs_own_y) CHECK(holds_[plan_.outputs[i]] == Output(i));
      CHECK(SignsAreLeft(i));
    }
    for (size_t k = 0; k < node.reads.size(); ++k) {
      const TrainingBuffers::InputGradient& to = plan_.input_gradients[i][k];
      if (to.buffer == kNoBuffer) continue;
      const int read = node.reads[k];
      const int64_t width = read == kNetworkInput ? 1 : nodes_[read].width;
      const bool is_in_place = to.buffer == plan_.gradients[i];
      CHECK((!is_in_place || (node.backward_in_place && k == 0)));
      if (to.adds) {
        CHECK(holds_[plan_.GradientOf(read)] == Gradient(read));
        Write(to.buffer, "part", width);
        CHECK(to.buffer != plan_.GradientOf(read));
        CHECK(holds_[plan_.GradientOf(read)] == Gradient(read));
      } else {
        CHECK(to.buffer == plan_.GradientOf(read));
        Write(to.buffer, Gradient(read), width);
      }
      (*parts)[read + 1].push_back(i);
      // The node's own gradient is read for each of its inputs, or what was written over it for the first one.
      const int over = plan_.input_gradients[i][0].buffer == plan_.gradients[i] ? node.reads[0] : i;
      CHECK(holds_[plan_.gradients[i]] == Gradient(over));
    }
  }

  const Nodes& nodes_;
  const TrainingBuffers& plan_;
  std::vector<std::string> holds_;
};

}  // namespace

TEST_CASE("a chain evaluates in two buffers by turns, its elementwise nodes in place",
          "[buffers]") {
  Nodes nodes = {Product({kNetworkInput}, 30), Relu(0, 30), Product({1}, 20), Product({2}, 40)};
  ForwardBuffers plan = PlanForward(nodes);
  CHECK(plan.outputs == std::vector<int>{0, 0, 1, 2});
  CHECK(plan.places.widths == std::vector<int64_t>{30, 20, 40});
  CHECK(plan.places.offsets[0] == plan.places.offsets[2]);
  CHECK(plan.places.floats == 48 + 32);
  // The network's input is nobody's to write, unless it lies in a buffer.
  nodes = {Relu(kNetworkInput, 30), Product({0}, 10)};
  plan = PlanForward(nodes);
  CHECK(plan.outputs == std::vector<int>{0, 1});
  plan = PlanForward(nodes, 30);
  CHECK(plan.input == 0);
  CHECK(plan.outputs == std::vector<int>{0, 1});
  CHECK(plan.places.widths == std::vector<int64_t>{30, 10});
  CHECK(plan.places.floats == 32 + 16);
}

TEST_CASE("an identity takes no buffer, and its input stays for its readers", "[buffers]") {
  GraphNode identity = Relu(kNetworkInput, 8);
  identity.is_identity = true;
  CHECK(PlanForward(Nodes{identity, Relu(0, 8)}).outputs == std::vector<int>{kNetworkInput, 0});
  identity.reads = {0};
  const Nodes nodes = {Product({kNetworkInput}, 8), identity, Product({0}, 8), Join({1, 2}, 8)};
  CHECK(PlanForward(nodes).outputs == std::vector<int>{0, 0, 1, 2});
}

TEST_CASE("what a branch still reads is not overwritten in evaluation", "[buffers]") {
  // y = relu(x) + x.
  const Nodes nodes = {Product({kNetworkInput}, 8), Relu(0, 8), Join({1, 0}, 8), Product({2}, 8)};
  const ForwardBuffers plan = PlanForward(nodes);
  CHECK(plan.outputs == std::vector<int>{0, 1, 2, 3});
  CHECK(plan.places.floats == 3 * kLine);
}

TEST_CASE("a chain trains in what its backward pass reads and two buffers for gradients",
          "[buffers]") {
  const Nodes nodes = {Product({kNetworkInput}, 30), Relu(0, 30), Product({1}, 20), Relu(2, 20),
                       Product({3}, 4)};
  const TrainingBuffers plan = PlanTraining(nodes);
  CHECK(plan.outputs == std::vector<int>{0, 0, 1, 1, 2});
  // The first product passes no gradient on.
  CHECK(plan.input_gradients[0][0].buffer == kNoBuffer);
  CHECK(plan.gradients[3] == plan.gradients[2]);
  CHECK(plan.gradients[1] == plan.gradients[0]);
  CHECK(plan.places.floats <= 32 + 32 + 16 + 2 * 32);
  Machine(nodes, plan).Train(false);
}

TEST_CASE("an activation that the backward pass does not read gives its buffer back", "[buffers]") {
  // What the second one reads is turned round first, which its backward pass needs nothing for.
  const Nodes nodes = {Product({kNetworkInput}, 30), Join({0}, 30), Product({1}, 30),
                       Product({2}, 5)};
  const TrainingBuffers plan = PlanTraining(nodes);
  CHECK(plan.places.offsets[plan.outputs[2]] == plan.places.offsets[plan.outputs[0]]);
  Machine(nodes, plan).Train(false);
}

TEST_CASE("a wide gradient lies where narrower activations were", "[buffers]") {
  // Outputs of 64, 32, 32 and 32: when the gradient of the first one comes to be all behind it is done with.
  const Nodes nodes = {Product({kNetworkInput}, 64), Product({0}, 32), Product({1}, 32),
                       Product({2}, 32), Product({3}, 16)};
  const TrainingBuffers plan = PlanTraining(nodes);
  Machine(nodes, plan).Train(false);
  CHECK(plan.places.floats == 64 + 3 * 32 + 16 + 32);
}

TEST_CASE("only what is in front of a parameter has no gradient", "[buffers]") {
  const Nodes nodes = {Relu(kNetworkInput, 4), Product({0}, 3), Relu(1, 3), Product({2}, 2)};
  const TrainingBuffers plan = PlanTraining(nodes);
  CHECK(plan.gradients[0] == kNoBuffer);
  CHECK(plan.gradients[1] != kNoBuffer);
  CHECK(plan.input_gradient == kNoBuffer);
  TrainingWishes wishes;
  wishes.input_gradient_width = 4;
  const TrainingBuffers back = PlanTraining(nodes, wishes);
  REQUIRE(back.input_gradient != kNoBuffer);
  CHECK(back.gradients[0] != kNoBuffer);
  CHECK(back.input_gradients[0][0].buffer == back.input_gradient);
  CHECK(std::count(back.outputs.begin(), back.outputs.end(), back.input_gradient) == 0);
  CHECK(std::count(back.gradients.begin(), back.gradients.end(), back.input_gradient) == 0);
}

TEST_CASE("a branch's gradient is the sum of its readers' parts, the last reader's first",
          "[buffers]") {
  // A residual block: y = product(relu(product(x))) + x, behind and in front of a product.
  const Nodes nodes = {Product({kNetworkInput}, 8),
                       Product({0}, 8),
                       Relu(1, 8),
                       Product({2}, 8),
                       Join({3, 0}, 8),
                       Product({4}, 2)};
  const TrainingBuffers plan = PlanTraining(nodes);
  // The sum reads x last, so that the shortcut's part comes first, and the block's is added to it.
  CHECK_FALSE(plan.input_gradients[4][1].adds);
  CHECK(plan.input_gradients[4][1].buffer == plan.gradients[0]);
  CHECK(plan.input_gradients[1][0].adds);
  CHECK(plan.input_gradients[1][0].buffer != plan.gradients[0]);
  const auto parts = Machine(nodes, plan).Train(false);
  CHECK(parts[1] == std::vector<int>{4, 1});
  CHECK(parts[4] == std::vector<int>{4});
}

TEST_CASE("signs that a backward pass reads are kept, through all that works in place behind",
          "[buffers]") {
  GraphNode drops = Relu(1, 8);
  drops.backward_reads_y = false;
  for (const bool keeps : {false, true}) {
    GraphNode last = Relu(2, 8);
    last.keeps_signs = keeps;
    last.needs_own_y = true;
    Nodes nodes = {Product({kNetworkInput}, 8), Relu(0, 8), drops, last, Product({3}, 2)};
    // The last one reads what the first one's backward pass needs, in the buffer of the one between.
    std::vector<int> outputs = PlanTraining(nodes).outputs;
    CHECK(outputs[1] == outputs[2]);
    CHECK((outputs[3] == outputs[2]) == keeps);
    // Nothing in front of the first one learns: no backward pass reads signs.
    nodes[0].learns = false;
    outputs = PlanTraining(nodes).outputs;
    CHECK(outputs[3] == outputs[2]);
  }
}

TEST_CASE("branches read one output, which the first of them may not overwrite", "[buffers]") {
  const Nodes nodes = {Product({kNetworkInput}, 6), Relu(0, 6), Relu(0, 6), Product({0}, 4),
                       Join({1, 2, 3}, 16)};
  const TrainingBuffers plan = PlanTraining(nodes);
  CHECK(std::set<int>(plan.outputs.begin(), plan.outputs.begin() + 4).size() == 4);
  const auto parts = Machine(nodes, plan).Train(false);
  CHECK(parts[1] == std::vector<int>{3, 2, 1});
}

TEST_CASE("the input's gradient is a sum where several nodes read the input", "[buffers]") {
  const Nodes nodes = {Product({kNetworkInput}, 6), Product({kNetworkInput}, 6), Join({0, 1}, 6)};
  TrainingWishes wishes;
  wishes.input_gradient_width = 1;
  const TrainingBuffers plan = PlanTraining(nodes, wishes);
  CHECK_FALSE(plan.input_gradients[1][0].adds);
  CHECK(plan.input_gradients[0][0].adds);
  CHECK(Machine(nodes, plan).Train(false)[0] == std::vector<int>{1, 0});
}

TEST_CASE("a node that reads one output twice has two parts in its gradient", "[buffers]") {
  const Nodes nodes = {Product({kNetworkInput}, 6), Join({0, 0}, 6), Product({1}, 2)};
  const TrainingBuffers plan = PlanTraining(nodes);
  CHECK_FALSE(plan.input_gradients[1][0].adds);
  CHECK(plan.input_gradients[1][1].adds);
  CHECK(Machine(nodes, plan).Train(false)[1] == std::vector<int>{1, 1});
}

TEST_CASE("an output that its own backward pass reads as it was is not overwritten", "[buffers]") {
  Nodes nodes = {Product({kNetworkInput}, 6), Relu(0, 6), Relu(1, 6), Product({2}, 2)};
  CHECK(PlanTraining(nodes).outputs[2] == PlanTraining(nodes).outputs[1]);
  nodes[1].needs_own_y = true;
  const TrainingBuffers plan = PlanTraining(nodes);
  CHECK(plan.outputs[1] == plan.outputs[0]);
  CHECK(plan.outputs[2] != plan.outputs[1]);
  Machine(nodes, plan).Train(false);
}

TEST_CASE("plans of random graphs read nothing that was overwritten", "[buffers]") {
  for (unsigned seed = 0; seed < 3000; ++seed) {
    CAPTURE(seed);
    std::mt19937 random(seed);
    const auto draw = [&](int count) { return static_cast<int>(random() % count); };
    Nodes nodes;
    const int count = 1 + draw(12);
    for (int i = 0; i < count; ++i) {
      GraphNode node;
      const int inputs = draw(3) == 0 ? 2 + draw(2) : 1;
      for (int k = 0; k < inputs; ++k) {
        node.reads.push_back(draw(3) == 0 ? draw(i + 1) - 1 : i - 1);
      }
      node.width = 1 + draw(9);
      if (node.reads[0] != kNetworkInput && draw(2) == 0) {
        node.in_place = draw(2) == 0;
        node.backward_in_place = draw(2) == 0;
        node.keeps_signs = draw(2) == 0;
        node.width = nodes[node.reads[0]].width;
      }
      node.learns = draw(3) == 0;
      node.backward_reads_x = !node.in_place && draw(2) == 0;
      node.backward_reads_y = draw(2) == 0;
      node.needs_own_y = draw(2) == 0;
      nodes.push_back(node);
    }
    TrainingWishes wishes;
    wishes.keeps_output = draw(2) == 0;
    if (draw(2) == 0) wishes.input_gradient_width = 1;
    const TrainingBuffers plan = PlanTraining(nodes, wishes);
    const auto parts = Machine(nodes, plan).Train(wishes.keeps_output);
    for (const std::vector<int>& order : parts) {
      CHECK(std::is_sorted(order.rbegin(), order.rend()));
    }
  }
}

TEST_CASE("chains need no more than every output once and two buffers as wide as the widest",
          "[buffers]") {
  for (unsigned seed = 0; seed < 2000; ++seed) {
    CAPTURE(seed);
    std::mt19937 random(seed);
    Nodes nodes;
    int64_t outputs = 0, widest = 0;
    const int count = 1 + static_cast<int>(random() % 14);
    for (int i = 0; i < count; ++i) {
      const bool is_relu = i > 0 && random() % 2 == 0;
      const int64_t width =
          is_relu ? nodes.back().width : kLine * (1 + static_cast<int64_t>(random() % 50));
      nodes.push_back(is_relu ? Relu(i - 1, width) : Product({i - 1}, width));
      if (!is_relu && random() % 3 == 0) {
        nodes.back().learns = nodes.back().backward_reads_x = false;
      }
      if (!is_relu) outputs += width;
      widest = std::max(widest, width);
    }
    const TrainingBuffers training = PlanTraining(nodes);
    CHECK(training.places.floats <= outputs + 2 * widest);
    CHECK(PlanForward(nodes).places.floats <= 2 * widest);
  }
}

}  // namespace tessera
