// Which buffer each activation and each gradient of a network lies in: a graph of nodes, planned by liveness.
//
// A node reads the outputs of nodes before it, or the network's input, and writes one output. The order of the nodes is
// the order of the forward pass; the backward pass goes the other way. A place is given to another value once the last
// reader of the one in it is done, so that a chain of layers trains in what its backward pass reads, and room for two
// gradients.
//
// Where several nodes read one output its gradient is their sum: the last of these nodes, whose backward pass comes
// first, writes its part where the sum will lie, and the others' parts are added in the order of the backward pass.
//
// All buffers lie in one memory, and those that are used at different times may share places of it: a wide gradient
// lies where several narrower activations were.
#ifndef TESSERA_WORKER_MODEL_BUFFER_PLAN_H_
#define TESSERA_WORKER_MODEL_BUFFER_PLAN_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"

namespace tessera {

// In GraphNode::reads, and as a buffer: what the network reads, which is nobody's to write.
constexpr int kNetworkInput = -1;
// The buffer of a value that there is not.
constexpr int kNoBuffer = -2;

struct GraphNode {
  // Nodes before this one, or kNetworkInput; at least one.
  std::vector<int> reads;
  // Floats of an example's output.
  int64_t width = 0;
  // The output is what the node reads first, which it leaves alone.
  bool is_identity = false;
  // The output may be written over what the node reads first; keeps_signs: it is then positive where that was and
  // nowhere else, or passes no gradient there.
  bool in_place = false;
  bool keeps_signs = false;

  // In training: it has parameters of its own; the gradient of what it reads first may be written over the gradient of
  // its output, which those of the others are written from as well; its backward pass reads its inputs, or its output.
  bool learns = false;
  bool backward_in_place = false;
  bool backward_reads_x = false;
  bool backward_reads_y = false;
  // Where it reads its output: as its forward pass wrote it, so that no node may write over that. Otherwise only the
  // signs count.
  bool needs_own_y = false;
};

// Where buffers lie in the memory that they share: in floats of an example, so that for n examples a buffer begins at n
// times its offset. Each begins at a line of the cache.
struct BufferPlaces {
  std::vector<int64_t> widths;   // by buffer
  std::vector<int64_t> offsets;  // by buffer
  int64_t floats = 0;            // of all together
};

// One forward pass, whose last node's output is kept.
struct ForwardBuffers {
  BufferPlaces places;
  std::vector<int> outputs;  // by node: its buffer
  // The buffer of the network's input, where `input_width` was given.
  int input = kNetworkInput;
};

// Where `input_width` is given the network's input lies in a buffer, too, and may be overwritten.
ForwardBuffers PlanForward(absl::Span<const GraphNode> nodes, int64_t input_width = 0);

// A step of training: the forward pass, the loss of the last node's output, the backward pass.
struct TrainingBuffers {
  BufferPlaces places;
  std::vector<int> outputs;
  // By node: the buffer of its output's gradient. kNoBuffer: nothing in front of it learns, nor does the node itself.
  std::vector<int> gradients;
  // By node, for each of its inputs: where its backward pass writes the gradient, or kNoBuffer; and whether that is
  // then added to the gradient of what it read, which others have written to before.
  struct InputGradient {
    int buffer = kNoBuffer;
    bool adds = false;
  };
  std::vector<std::vector<InputGradient>> input_gradients;
  // The gradient of the network's input, where it is wanted. Nothing else is ever in that buffer.
  int input_gradient = kNoBuffer;

  // The gradient of what a node reads.
  int GradientOf(int read) const {
    return read == kNetworkInput ? input_gradient : gradients[read];
  }
};

struct TrainingWishes {
  // The last output is read until the backward pass is over, not by the loss alone.
  bool keeps_output = false;
  // The gradient of the network's input, of so many floats for each example. 0: nobody wants it.
  int64_t input_gradient_width = 0;
};
TrainingBuffers PlanTraining(absl::Span<const GraphNode> nodes, const TrainingWishes& wishes = {});

}  // namespace tessera

#endif  // TESSERA_WORKER_MODEL_BUFFER_PLAN_H_
