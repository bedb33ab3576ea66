// The evaluation of a network that nobody holds: its weights are read a block of rows at a time.
//
//   for each stage of the network, in order, on all examples at hand:
//     a linear layer, for each block of its rows, which are neurons:
//       read the block; multiply it with the layer's inputs
//       send the sums through the stages behind it that look at one neuron at a time, and nothing else reads
//     any other stage: as a network does
//
// Held are a block, the activations that are still to be read, the parameters that are vectors, and convolutions'
// weights. Calibration goes through what is in front of the first linear layer, whose weights are held, in pieces of
// the sample, as a network's does; behind it the whole sample goes from layer to layer, so that weights are read once.
#ifndef TESSERA_WORKER_MODEL_STREAMED_NETWORK_H_
#define TESSERA_WORKER_MODEL_STREAMED_NETWORK_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/backend.h"
#include "kernels/host_view.h"
#include "proto/job.pb.h"
#include "worker/exchange/row_source.h"
#include "worker/model/batch.h"
#include "worker/model/batch_staging.h"
#include "worker/model/buffer_plan.h"
#include "worker/model/example_source.h"
#include "worker/model/plan.h"

namespace tessera {

// Calibrate and Score give what a whole Network gives: to the bit, but for what a matrix product
// rounds otherwise when it has fewer columns. All in f32.
//
// Threading: one thread at a time, the backend's. Buffers are taken in Begin, Calibrate and Score;
// those of the latter two are given back when they return.
class StreamedNetwork {
 public:
  struct Options {
    // Examples of one product: a Network's batch_max.
    int64_t batch_max = 0;
    bool sparse_input = false;
    // The bytes of weights that are held at once, and of sums; at least a row and a column are.
    int64_t block_bytes = int64_t{8} << 20;
    // Examples that Score sends through the model together. More take as many readings of it.
    int64_t examples_max = 0;
  };

  // `backend` outlives it. kInvalidArgument as Network::Create.
  static absl::StatusOr<std::unique_ptr<StreamedNetwork>> Create(const v1::Model& model,
                                                                 const Options& options,
                                                                 Backend& backend);

  // All that it takes for such numbers of examples, at most.
  static int64_t MemoryNeeded(const NetworkPlan& plan, const Options& options,
                              int64_t calibration_examples, int64_t score_examples);

  // Reads what is held. `source` is read until the last Calibrate or Score; it outlives this.
  // `factors`, by parameter, multiply weights as they are read; 1 where it is empty.
  absl::Status Begin(RowSource* source, std::vector<float> factors);

  // NetworkEvaluation's, after Begin. Calibrate reads no weights behind the last batch norm.
  absl::StatusOr<std::vector<float>> Calibrate(ExampleSource* examples);
  absl::StatusOr<Scores> Score(ExampleSource* examples, absl::Span<const float> constants);

 private:
  // Some stages that are sent through together: one, or a linear layer with those behind it that work on its blocks.
  struct Node {
    const StagePlan* linear = nullptr;
    std::vector<const StagePlan*> stages;  // without `linear`
    // Nodes before this one, or kNetworkInput.
    std::vector<int> reads;
    // The values of an example, or of each place that a linear layer acts on.
    int64_t inputs = 0;
    int64_t outputs = 0;
    int64_t places = 1;
    int64_t constants = 0;  // where those of `stages` begin
    bool normalises() const;
  };
  // What one pass over the model works in.
  struct Buffers {
    Buffer<float> weights;
    HostView<float> weights_view;
    Buffer<float> sums;         // [examples, places, neurons of a block]
    Buffer<float> activations;  // where the buffers of `plan` lie
    ForwardBuffers plan;
    int64_t examples = 0;  // that there is room for
    // The address of a buffer; null for the examples' own inputs.
    float* at(int buffer) const {
      return buffer < 0 ? nullptr : activations.data() + examples * plan.places.offsets[buffer];
    }
  };
  // The floats that a pass works in.
  struct Sizes {
    int64_t weights = 0, sums = 0;
    ForwardBuffers plan;
    int64_t examples = 0;
    int64_t floats() const;
  };
  struct Pass {
    ExampleSource* examples = nullptr;
    int64_t begin = 0;
    int64_t count = 0;
    bool calibrates = false;
    Buffers* buffers = nullptr;
    // [count, values], what the nodes read in place of the examples' inputs; null: those.
    const float* inputs = nullptr;
  };

  StreamedNetwork(const v1::Model& model, const Options& options, NetworkPlan plan,
                  Backend& backend);
  static std::vector<Node> NodesOf(const NetworkPlan& plan);
  static int64_t BlockRows(const Options& options, const Node& node, int64_t examples);
  // Without keeps_last a linear layer at the end leaves nothing but the constants of what is behind it.
  // `reads_examples`: what they read is the examples' inputs.
  static Sizes SizesOf(const std::vector<Node>& nodes, const Options& options, int64_t examples,
                       bool keeps_last, bool reads_examples);
  // Nodes that calibration must go through: up to the last batch norm.
  static std::vector<Node> Calibrated(const std::vector<Node>& nodes);
  // What is in front of the first linear layer, as a network of its own; none where nothing is calibrated there, or
  // where layers behind it read more of it than its last output.
  static std::optional<NetworkPlan> FrontOf(const NetworkPlan& plan);
  // Those of `nodes` that are behind the front, which they read as their input.
  static std::vector<Node> BehindFront(const std::vector<Node>& nodes);
  // Writes the front's constants, and to `outputs` what its last layer makes of each example.
  absl::Status CalibrateFront(ExampleSource* examples, const NetworkPlan& front, float* outputs);
  absl::StatusOr<Buffers> Allocate(const Sizes& sizes);
  // Sends the pass's examples through `nodes`. Returns the last one's activations.
  absl::StatusOr<const float*> Run(const std::vector<Node>& nodes, const Pass& pass);
  // The examples through a linear layer and what works on its blocks. `x` is null for the examples' own inputs, `y`
  // where the output is not kept.
  absl::Status RunLinear(const Node& node, const Pass& pass, const float* x, float* y);
  // The examples through a stage that is no linear layer.
  absl::Status RunOther(const Node& node, const Pass& pass, const std::vector<const float*>& x,
                        float* y);
  // `x` are such columns of what the stage reads, `y` those of what it writes.
  void ApplyElementwise(const StagePlan& plan, const UnitColumns& columns, bool calibrates,
                        float* constants, const float* x, float* y);
  Stage& StageOf(const StagePlan& plan) { return *stages_[&plan - plan_.stages.data()]; }
  absl::Status CopyInputs(const Pass& pass, int64_t inputs, float* to);
  absl::Status ReadBlock(const RowRange& rows, int64_t columns, HostView<float>* to);
  // Reads rows and multiplies them by their parameter's factor.
  absl::Status ReadScaled(const RowRange& rows, absl::Span<float> to);
  absl::Status Multiply(const Node& node, const RowRange& rows, const float* x, const Pass& pass);
  const float* Held(int parameter) const;

  const v1::Model model_;
  const Options options_;
  const NetworkPlan plan_;
  const std::vector<Node> nodes_;
  Backend& backend_;
  RowSource* source_ = nullptr;
  std::vector<float> factors_;
  BatchStaging staging_;
  Buffer<float> held_;
  HostView<float> held_view_;
  std::vector<int64_t> held_offsets_;  // by parameter
  // By stage of the plan; null for those that work by rows.
  std::vector<std::unique_ptr<Stage>> stages_;
  Buffer<float> constants_;
  Buffer<double> calibration_sums_;  // of one stage's units
  Buffer<LossSums> sums_;
  HostView<LossSums> sums_view_;
};

}  // namespace tessera

#endif  // TESSERA_WORKER_MODEL_STREAMED_NETWORK_H_
