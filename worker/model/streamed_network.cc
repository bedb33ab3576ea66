#include "worker/model/streamed_network.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/layout/layers/layer_kinds.h"
#include "worker/model/model_loss.h"
#include "worker/model/network_arrays.h"
#include "worker/model/network_evaluation.h"
#include "worker/model/network_input.h"
#include "worker/model/network_memory.h"
#include "worker/model/network_stages.h"

namespace tessera {
namespace {

constexpr int64_t kFloatBytes = sizeof(float);

// By parameter: whether it is held whole, as all are but the weights that are multiplied by rows.
std::vector<bool> HeldOf(const NetworkPlan& plan) {
  std::vector<bool> held(plan.shape.parameters.size(), true);
  for (const StagePlan& stage : plan.stages) {
    if (stage.kind->works_by_rows && stage.weight >= 0) held[stage.weight] = false;
  }
  return held;
}

int64_t HeldFloats(const NetworkPlan& plan) {
  const std::vector<bool> held = HeldOf(plan);
  int64_t floats = 0;
  for (size_t p = 0; p < held.size(); ++p) {
    if (held[p]) floats += plan.shape.parameters[p].size();
  }
  return floats;
}

}  // namespace

bool StreamedNetwork::Node::normalises() const {
  return std::any_of(stages.begin(), stages.end(),
                     [](const StagePlan* stage) { return stage->constants() > 0; });
}

std::vector<StreamedNetwork::Node> StreamedNetwork::NodesOf(const NetworkPlan& plan) {
  std::vector<int> readers(plan.stages.size(), 0);
  for (const StagePlan& stage : plan.stages) {
    for (const int read : stage.reads) {
      if (read != kNetworkInput) ++readers[read];
    }
  }
  std::vector<Node> nodes;
  std::vector<int> node_of;  // by stage
  int64_t constants = 0;
  for (const StagePlan& stage : plan.stages) {
    const int first = stage.reads[0];
    const int before = first == kNetworkInput ? kNetworkInput : node_of[first];
    // Stages that work on units alone go along with the blocks of the linear layer in front of them, so that its whole
    // output need not be kept.
    const bool joins_block = stage.is_elementwise() && before != kNetworkInput &&
                             before + 1 == static_cast<int>(nodes.size()) &&
                             nodes[before].linear != nullptr && readers[first] == 1;
    if (!joins_block) {
      Node& node = nodes.emplace_back();
      for (const int read : stage.reads) {
        node.reads.push_back(read == kNetworkInput ? kNetworkInput : node_of[read]);
      }
      node.constants = constants;
      if (stage.kind->works_by_rows) {
        node.linear = &stage;
        node.places = stage.map.from.places();
      }
      node.inputs = stage.inputs / node.places;
    }
    Node& node = nodes.back();
    node.outputs = stage.outputs / node.places;
    if (node.linear != &stage) node.stages.push_back(&stage);
    node_of.push_back(static_cast<int>(nodes.size()) - 1);
    constants += stage.constants();
  }
  return nodes;
}

std::vector<StreamedNetwork::Node> StreamedNetwork::Calibrated(const std::vector<Node>& nodes) {
  std::vector<Node> needed = nodes;
  while (!needed.empty() && !needed.back().normalises()) needed.pop_back();
  return needed;
}

std::optional<NetworkPlan> StreamedNetwork::FrontOf(const NetworkPlan& plan) {
  const auto linear =
      std::find_if(plan.stages.begin(), plan.stages.end(),
                   [](const StagePlan& stage) { return stage.kind->works_by_rows; });
  if (linear == plan.stages.begin() || linear == plan.stages.end()) return std::nullopt;
  // Fails where something behind the linear layer reads more of the front than its last output.
  absl::StatusOr<NetworkPlan> front = HalfOf(plan, {0, linear->layer});
  if (!front.ok() || front->constants == 0) return std::nullopt;
  // The front is evaluated as a network of its own, whereas a half only trains.
  front->part = ModelPart::kWhole;
  return *std::move(front);
}

std::vector<StreamedNetwork::Node> StreamedNetwork::BehindFront(const std::vector<Node>& nodes) {
  const auto first = std::find_if(nodes.begin(), nodes.end(),
                                  [](const Node& node) { return node.linear != nullptr; });
  std::vector<Node> behind(first, nodes.end());
  const int before = static_cast<int>(first - nodes.begin());
  for (Node& node : behind) {
    // The front's output takes the place of what the network reads.
    for (int& read : node.reads) read = std::max(kNetworkInput, read - before);
  }
  return behind;
}

// A multiple of 16 where there are as many: kernels work on so many neurons at a time.
int64_t StreamedNetwork::BlockRows(const Options& options, const Node& node, int64_t examples) {
  const int64_t wider = std::max(node.inputs, examples * node.places);
  // A block is limited by the wider of its sides: rows of the weight, and columns of the sums of all examples.
  const int64_t rows = std::max<int64_t>(1, options.block_bytes / kFloatBytes / wider);
  return std::min(node.outputs, rows < 16 ? rows : rows / 16 * 16);
}

int64_t StreamedNetwork::Sizes::floats() const {
  // The activations of all examples at once, unlike in a network, which has batch_max of them.
  return weights + sums + examples * plan.places.floats;
}

StreamedNetwork::Sizes StreamedNetwork::SizesOf(const std::vector<Node>& nodes,
                                                const Options& options, int64_t examples,
                                                bool keeps_last, bool reads_examples) {
  Sizes sizes;
  sizes.examples = examples;
  std::vector<GraphNode> graph;
  bool copies_inputs = false;
  for (const Node& node : nodes) {
    GraphNode& each = graph.emplace_back();
    each.reads = node.reads;
    each.width = node.outputs * node.places;
    if (node.linear != nullptr) {
      const int64_t rows = BlockRows(options, node, examples);
      sizes.weights = std::max(sizes.weights, rows * node.inputs);
      sizes.sums = std::max(sizes.sums, examples * node.places * rows);
      continue;
    }
    const StagePlan& stage = *node.stages.front();
    each.is_identity = stage.is_off_in_evaluation();
    each.in_place = stage.is_elementwise() || stage.kind->forward_in_place;
    // A node that is no linear layer reads its inputs in device memory. Linear layers take the caller's batches piece
    // by piece.
    copies_inputs =
        copies_inputs ||
        (reads_examples && std::count(node.reads.begin(), node.reads.end(), kNetworkInput) > 0);
  }
  // Calibration needs no output of the last layer, only the statistics behind its blocks.
  if (!keeps_last && !nodes.empty() && nodes.back().linear != nullptr) graph.back().width = 0;
  sizes.plan = PlanForward(graph, copies_inputs ? nodes.front().inputs : 0);
  return sizes;
}

int64_t StreamedNetwork::MemoryNeeded(const NetworkPlan& plan, const Options& options,
                                      int64_t calibration_examples, int64_t score_examples) {
  const std::vector<Node> nodes = NodesOf(plan);
  const std::vector<Node> calibrated = Calibrated(nodes);
  int64_t calibrates = 0;
  // Calibration and scoring come one after the other, as do the front and what is behind it: the larger of each counts.
  if (const std::optional<NetworkPlan> front = FrontOf(plan)) {
    const NetworkMemory memory =
        tessera::MemoryNeeded(*front, options.batch_max, Precision::kF32, calibration_examples);
    const int64_t pieces = memory.evaluation_bytes + memory.evaluation_calibration_bytes;
    const int64_t behind =
        SizesOf(BehindFront(calibrated), options, calibration_examples, false, false).floats();
    const int64_t outputs = calibration_examples * front->shape.widths.back();
    calibrates = outputs * kFloatBytes + std::max(pieces, behind * kFloatBytes);
  } else {
    calibrates =
        SizesOf(calibrated, options, calibration_examples, false, true).floats() * kFloatBytes;
  }
  const int64_t examples = std::min(options.examples_max, score_examples);
  const int64_t scores = SizesOf(nodes, options, examples, true, true).floats() * kFloatBytes;
  const int64_t kept = KeptFloats(plan, options.batch_max, /*trains=*/false);
  return (HeldFloats(plan) + plan.constants + kept) * kFloatBytes + std::max(calibrates, scores) +
         CalibrationSums(plan) * static_cast<int64_t>(sizeof(double)) +
         static_cast<int64_t>(sizeof(LossSums));
}

absl::StatusOr<std::unique_ptr<StreamedNetwork>> StreamedNetwork::Create(const v1::Model& model,
                                                                         const Options& options,
                                                                         Backend& backend) {
  if (options.batch_max < 1 || options.examples_max < 1 || options.block_bytes < 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "streamed network: batch_max is ", options.batch_max, ", examples_max ",
        options.examples_max, ", block_bytes ", options.block_bytes, ", want each at least 1"));
  }
  TESSERA_RETURN_IF_ERROR(CheckLoss(model));
  TESSERA_ASSIGN_OR_RETURN(NetworkPlan plan, PlanOf(model));
  if (options.sparse_input && !ReadsSparse(model)) {
    return absl::InvalidArgumentError(
        "model.layers: the first is no linear layer, want one: no other reads sparse rows");
  }
  return std::unique_ptr<StreamedNetwork>(
      new StreamedNetwork(model, options, std::move(plan), backend));
}

StreamedNetwork::StreamedNetwork(const v1::Model& model, const Options& options, NetworkPlan plan,
                                 Backend& backend)
    : model_(model),
      options_(options),
      plan_(std::move(plan)),
      nodes_(NodesOf(plan_)),
      backend_(backend),
      staging_(&backend.memory()) {}

absl::Status StreamedNetwork::Begin(RowSource* source, std::vector<float> factors) {
  source_ = source;
  factors_ = std::move(factors);
  Memory& memory = backend_.memory();
  // The first call allocates. Later ones read another model's values into the same room.
  if (sums_.size() == 0) {
    TESSERA_ASSIGN_OR_RETURN(held_, Buffer<float>::Create(memory, HeldFloats(plan_)));
    TESSERA_ASSIGN_OR_RETURN(constants_, Buffer<float>::Create(memory, plan_.constants));
    TESSERA_ASSIGN_OR_RETURN(calibration_sums_,
                             Buffer<double>::Create(memory, CalibrationSums(plan_)));
    TESSERA_ASSIGN_OR_RETURN(sums_, Buffer<LossSums>::Create(memory, 1));
    TESSERA_ASSIGN_OR_RETURN(held_view_,
                             HostView<float>::Create(memory, held_.data(), held_.size()));
    TESSERA_ASSIGN_OR_RETURN(sums_view_, HostView<LossSums>::Create(memory, sums_.data(), 1));
  }
  // Held parameters lie packed, without the padding of a network's.
  const std::vector<bool> is_held = HeldOf(plan_);
  held_offsets_.clear();
  int64_t offset = 0;
  for (size_t p = 0; p < is_held.size(); ++p) {
    const ParameterSpec& spec = plan_.shape.parameters[p];
    held_offsets_.push_back(offset);
    if (!is_held[p]) continue;
    const absl::Span<float> held(held_view_.data() + offset, static_cast<size_t>(spec.size()));
    TESSERA_RETURN_IF_ERROR(ReadScaled({static_cast<int>(p), 0, spec.rows}, held));
    offset += spec.size();
  }
  held_view_.Send();
  // Stages have the addresses of held parameters, and are made anew with them.
  stages_.clear();
  for (const StagePlan& stage : plan_.stages) {
    std::unique_ptr<Stage> made;
    if (!stage.kind->works_by_rows) {
      StageOptions made_for;
      made_for.batch_max = options_.batch_max;
      made_for.parameters = {Held(stage.weight), Held(stage.bias)};
      TESSERA_ASSIGN_OR_RETURN(made, stage.kind->make(stage, made_for, backend_));
    }
    stages_.push_back(std::move(made));
  }
  return absl::OkStatus();
}

const float* StreamedNetwork::Held(int parameter) const {
  return parameter < 0 ? nullptr : held_.data() + held_offsets_[parameter];
}

absl::StatusOr<StreamedNetwork::Buffers> StreamedNetwork::Allocate(const Sizes& sizes) {
  Memory& memory = backend_.memory();
  Buffers buffers;
  buffers.examples = sizes.examples;
  buffers.plan = sizes.plan;
  TESSERA_ASSIGN_OR_RETURN(buffers.weights, Buffer<float>::Create(memory, sizes.weights));
  TESSERA_ASSIGN_OR_RETURN(buffers.weights_view,
                           HostView<float>::Create(memory, buffers.weights.data(), sizes.weights));
  TESSERA_ASSIGN_OR_RETURN(buffers.sums, Buffer<float>::Create(memory, sizes.sums));
  TESSERA_ASSIGN_OR_RETURN(
      buffers.activations,
      Buffer<float>::Create(memory, sizes.examples * sizes.plan.places.floats));
  return buffers;
}

absl::StatusOr<std::vector<float>> StreamedNetwork::Calibrate(ExampleSource* examples) {
  if (plan_.constants == 0) return std::vector<float>();
  const int64_t count = examples->count();
  if (count == 0) {
    return absl::InvalidArgumentError("calibration: the sample is empty, want at least one row");
  }
  std::vector<Node> nodes = Calibrated(nodes_);
  Buffer<float> inputs;
  const std::optional<NetworkPlan> front = FrontOf(plan_);
  if (front.has_value()) {
    TESSERA_ASSIGN_OR_RETURN(
        inputs, Buffer<float>::Create(backend_.memory(), count * front->shape.widths.back()));
    TESSERA_RETURN_IF_ERROR(CalibrateFront(examples, *front, inputs.data()));
    nodes = BehindFront(nodes);
  }
  if (!nodes.empty()) {
    TESSERA_ASSIGN_OR_RETURN(Buffers buffers,
                             Allocate(SizesOf(nodes, options_, count, /*keeps_last=*/false,
                                              /*reads_examples=*/!front.has_value())));
    TESSERA_RETURN_IF_ERROR(
        Run(nodes, {examples, 0, count, true, &buffers, inputs.data()}).status());
  }
  std::vector<float> constants(plan_.constants);
  backend_.memory().CopyOut(constants_.data(), constants_.bytes(), constants.data());
  TESSERA_RETURN_IF_ERROR(backend_.Finish());
  return constants;
}

absl::Status StreamedNetwork::CalibrateFront(ExampleSource* examples, const NetworkPlan& front,
                                             float* outputs) {
  // In pieces of the sample, unlike what is behind the front: the activations of convolutions are large.
  Memory& memory = backend_.memory();
  NetworkOptions options;
  options.batch_max = options_.batch_max;
  options.evaluates_only = true;
  NetworkInput input(front, model_.loss(), options, memory);
  TESSERA_ASSIGN_OR_RETURN(const std::unique_ptr<NetworkArrays> arrays,
                           NetworkArrays::Create(front, options, memory));
  for (size_t p = 0; p < front.shape.parameters.size(); ++p) {
    // Held parameters were multiplied by their factors when they were read.
    const absl::Span<float> values = arrays->parameter(static_cast<int>(p));
    std::copy_n(held_view_.data() + held_offsets_[p], values.size(), values.begin());
  }
  arrays->SendParameters();
  TESSERA_ASSIGN_OR_RETURN(const std::unique_ptr<NetworkStages> stages,
                           NetworkStages::Create(front, options, *arrays, backend_));
  TESSERA_ASSIGN_OR_RETURN(const std::unique_ptr<NetworkEvaluation> evaluation,
                           NetworkEvaluation::Create(model_, front, options, input, *stages,
                                                     /*steps=*/nullptr, backend_));
  TESSERA_ASSIGN_OR_RETURN(const std::vector<float> constants, evaluation->Calibrate(examples));
  memory.CopyIn(constants.data(), front.constants * kFloatBytes, constants_.data());
  const int64_t width = front.shape.widths.back();
  const int64_t count = examples->count();
  // Where the host cannot write to the device's memory.
  std::vector<float> piece;
  for (int64_t begin = 0; begin < count; begin += options_.batch_max) {
    const int64_t rows = std::min(options_.batch_max, count - begin);
    float* to = outputs + begin * width;
    if (!memory.host_addressable()) {
      piece.resize(rows * width);
      to = piece.data();
    }
    // A second reading of the sample, now with the constants: what is behind the front is calibrated on its outputs.
    const Batch batch = examples->Inputs(begin, rows);
    TESSERA_RETURN_IF_ERROR(examples->status());
    TESSERA_RETURN_IF_ERROR(
        evaluation->Predict(batch, constants, {to, static_cast<size_t>(rows * width)}));
    if (piece.empty()) continue;
    memory.CopyIn(piece.data(), rows * width * kFloatBytes, outputs + begin * width);
    TESSERA_RETURN_IF_ERROR(backend_.Finish());
  }
  return absl::OkStatus();
}

absl::StatusOr<Scores> StreamedNetwork::Score(ExampleSource* examples,
                                              absl::Span<const float> constants) {
  if (static_cast<int64_t>(constants.size()) != plan_.constants) {
    return absl::InvalidArgumentError(
        absl::StrCat("score: constants are ", constants.size(), " values, want ", plan_.constants));
  }
  backend_.memory().CopyIn(constants.data(), constants_.bytes(), constants_.data());
  const int64_t all = examples->count();
  const int64_t outputs = plan_.shape.outputs();
  const int64_t places = plan_.shape.places();
  TESSERA_ASSIGN_OR_RETURN(Buffers buffers,
                           Allocate(SizesOf(nodes_, options_, std::min(options_.examples_max, all),
                                            /*keeps_last=*/true, /*reads_examples=*/true)));
  Scores scores;
  for (int64_t begin = 0; begin < all; begin += options_.examples_max) {
    const int64_t count = std::min(options_.examples_max, all - begin);
    TESSERA_ASSIGN_OR_RETURN(const float* const logits,
                             Run(nodes_, {examples, begin, count, false, &buffers}));
    for (int64_t row = 0; row < count; row += options_.batch_max) {
      Batch batch = examples->Labelled(begin + row, std::min(options_.batch_max, count - row));
      // Labels alone: the logits are there.
      batch.inputs = nullptr;
      TESSERA_ASSIGN_OR_RETURN(batch,
                               staging_.Stage(batch, {plan_.shape.inputs(), outputs, places}));
      ComputeLoss(model_, plan_.shape, batch, logits + row * places * outputs, nullptr,
                  sums_.data(), backend_);
      sums_view_.Fetch();
      TESSERA_RETURN_IF_ERROR(backend_.Finish());
      scores += ScoresOf(*sums_view_.data(), batch.rows * places);
    }
  }
  return scores;
}

absl::StatusOr<const float*> StreamedNetwork::Run(const std::vector<Node>& nodes,
                                                  const Pass& pass) {
  const Buffers& buffers = *pass.buffers;
  if (float* const input = buffers.at(buffers.plan.input)) {
    TESSERA_RETURN_IF_ERROR(CopyInputs(pass, nodes.front().inputs, input));
  }
  for (size_t n = 0; n < nodes.size(); ++n) {
    const Node& node = nodes[n];
    std::vector<const float*> x;
    for (const int read : node.reads) {
      const int buffer = read == kNetworkInput ? buffers.plan.input : buffers.plan.outputs[read];
      x.push_back(buffer == kNetworkInput ? pass.inputs : buffers.at(buffer));
    }
    float* const y = buffers.at(buffers.plan.outputs[n]);
    const bool keeps = !pass.calibrates || n + 1 < nodes.size();
    // In calibration nobody reads the last node's output.
    TESSERA_RETURN_IF_ERROR(node.linear != nullptr
                                ? RunLinear(node, pass, x[0], keeps ? y : nullptr)
                                : RunOther(node, pass, x, y));
  }
  return buffers.at(buffers.plan.outputs.back());
}

absl::Status StreamedNetwork::RunLinear(const Node& node, const Pass& pass, const float* x,
                                        float* y) {
  // The room decides, not this pass's number of examples: weights are read in the same blocks in each pass.
  const int64_t block_rows = BlockRows(options_, node, pass.buffers->examples);
  float* const sums = pass.buffers->sums.data();
  for (int64_t first = 0; first < node.outputs; first += block_rows) {
    const int64_t width = std::min(block_rows, node.outputs - first);
    const RowRange rows{node.linear->factor(), first, first + width};
    TESSERA_RETURN_IF_ERROR(ReadBlock(rows, node.inputs, &pass.buffers->weights_view));
    TESSERA_RETURN_IF_ERROR(Multiply(node, rows, x, pass));
    float* constants = constants_.data() + node.constants;
    for (const StagePlan* const stage : node.stages) {
      ApplyElementwise(*stage, {{pass.count * node.places, width}, first}, pass.calibrates,
                       constants, sums, sums);
      constants += stage->constants();
    }
    if (y != nullptr) {
      // Columns [first, first + width) of the output, which is wider than a block.
      backend_.memory().CopyRows(sums, width * kFloatBytes, pass.count * node.places,
                                 width * kFloatBytes, y + first, node.outputs * kFloatBytes);
    }
    // The next block is read where this one lies.
    TESSERA_RETURN_IF_ERROR(backend_.Finish());
  }
  return absl::OkStatus();
}

absl::Status StreamedNetwork::RunOther(const Node& node, const Pass& pass,
                                       const std::vector<const float*>& x, float* y) {
  const StagePlan& stage = *node.stages.front();
  if (stage.is_elementwise()) {
    const Image& image = stage.map.from;
    ApplyElementwise(stage, {{pass.count * image.positions(), image.channels}, 0}, pass.calibrates,
                     constants_.data() + node.constants, x[0], y);
    return backend_.Finish();
  }
  std::vector<const float*> from(x.size());
  for (int64_t i = 0; i < pass.count; i += options_.batch_max) {
    for (size_t k = 0; k < x.size(); ++k) {
      const int read = stage.reads[k];
      const int64_t width =
          read == kNetworkInput ? plan_.shape.inputs() : plan_.stages[read].outputs;
      from[k] = x[k] + i * width;
    }
    // Constants are null: stages that have some work on units, and took the branch above.
    StageOf(stage).Evaluate(std::min(options_.batch_max, pass.count - i), from, nullptr,
                            y + i * stage.outputs);
  }
  return backend_.Finish();
}

// The examples lie in the host's memory only until the next ones are asked for.
absl::Status StreamedNetwork::CopyInputs(const Pass& pass, int64_t inputs, float* to) {
  for (int64_t i = 0; i < pass.count; i += options_.batch_max) {
    const Batch batch =
        pass.examples->Inputs(pass.begin + i, std::min(options_.batch_max, pass.count - i));
    backend_.memory().CopyIn(batch.inputs, batch.rows * inputs * kFloatBytes, to + i * inputs);
  }
  return backend_.Finish();
}

absl::Status StreamedNetwork::ReadBlock(const RowRange& rows, int64_t columns,
                                        HostView<float>* to) {
  TESSERA_RETURN_IF_ERROR(
      ReadScaled(rows, {to->data(), static_cast<size_t>(rows.count() * columns)}));
  to->Send();
  return absl::OkStatus();
}

absl::Status StreamedNetwork::ReadScaled(const RowRange& rows, absl::Span<float> to) {
  TESSERA_RETURN_IF_ERROR(source_->ReadRows(rows, to));
  const float factor = factors_.empty() ? 1.0f : factors_[rows.parameter];
  if (factor == 1.0f) return absl::OkStatus();
  for (float& w : to) w *= factor;
  return absl::OkStatus();
}

absl::Status StreamedNetwork::Multiply(const Node& node, const RowRange& rows, const float* x,
                                       const Pass& pass) {
  const int64_t width = rows.count();
  const float* const weights = pass.buffers->weights.data();
  // A block's neurons have the bias at their own rows.
  const float* bias = Held(node.linear->bias);
  if (bias != nullptr) bias += rows.row_begin;
  for (int64_t i = 0; i < pass.count; i += options_.batch_max) {
    const int64_t count = std::min(options_.batch_max, pass.count - i);
    // In pieces of batch_max rows, as a network multiplies them: a product of more rows may round otherwise.
    const LinearShape shape{count * node.places, node.inputs, width};
    float* const y = pass.buffers->sums.data() + i * node.places * width;
    if (x != nullptr) {
      backend_.linear().Forward(shape, x + i * node.places * node.inputs, weights, bias, y);
      continue;
    }
    TESSERA_ASSIGN_OR_RETURN(
        const Batch batch,
        staging_.Stage(pass.examples->Inputs(pass.begin + i, count), {node.inputs, 0, 1}));
    if (options_.sparse_input) {
      backend_.sparse_linear().Forward(shape, batch.sparse, weights, bias, y);
    } else {
      backend_.linear().Forward(shape, batch.inputs, weights, bias, y);
    }
    // The next examples may come where these lie.
    TESSERA_RETURN_IF_ERROR(backend_.Finish());
  }
  return absl::OkStatus();
}

void StreamedNetwork::ApplyElementwise(const StagePlan& plan, const UnitColumns& columns,
                                       bool calibrates, float* constants, const float* x,
                                       float* y) {
  if (plan.is_off_in_evaluation()) return;
  Stage& stage = StageOf(plan);
  if (calibrates && plan.constants() > 0) {
    // All rows of the sample are there, so that statistics need no second pass.
    stage.AddToSums(columns, /*is_first=*/true, x, calibration_sums_.data());
    stage.FindConstants(columns, calibration_sums_.data(), constants);
  }
  stage.EvaluateColumns(columns, x, constants, y);
}

}  // namespace tessera
