#include "worker/model/streamed_network.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/layout/layers/layer_kinds.h"
#include "worker/model/model_loss.h"
#include "worker/model/network_memory.h"

namespace tessera {
namespace {

constexpr int64_t kFloatBytes = sizeof(float);

// By parameter: whether it is held whole, as all are but the weights that are multiplied by rows.
std::vector<bool> HeldOf(const NetworkPlan& plan) {
  std::vector<bool> held(plan.shape.parameters.size(), true);
  for (const StagePlan& stage : plan.stages) {
    if (stage.kind->works_by_rows) held[stage.weight] = false;
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

bool StreamedNetwork::Segment::normalises() const {
  return std::any_of(behind.begin(), behind.end(),
                     [](const StagePlan* stage) { return stage->constants() > 0; });
}

std::vector<StreamedNetwork::Segment> StreamedNetwork::SegmentsOf(const NetworkPlan& plan) {
  std::vector<Segment> segments;
  int64_t constants = 0;
  for (const StagePlan& stage : plan.stages) {
    const bool is_behind_linear =
        segments.size() > 1 || (!segments.empty() && segments[0].linear != nullptr);
    const bool wants_all = is_behind_linear && !stage.is_elementwise();
    if (segments.empty() || stage.kind->works_by_rows || wants_all) {
      Segment segment;
      segment.inputs = stage.inputs;
      segment.outputs = stage.outputs;
      segment.constants = constants;
      if (stage.kind->works_by_rows) segment.linear = &stage;
      segments.push_back(segment);
    }
    if (!stage.kind->works_by_rows) {
      Segment& segment = segments.back();
      segment.behind.push_back(&stage);
      segment.outputs = stage.outputs;
      segment.moves += stage.is_elementwise() ? 0 : 1;
    }
    constants += stage.constants();
  }
  return segments;
}

std::vector<StreamedNetwork::Segment> StreamedNetwork::Calibrated(
    const std::vector<Segment>& segments) {
  std::vector<Segment> needed = segments;
  while (!needed.empty() && !needed.back().normalises()) needed.pop_back();
  return needed;
}

// A multiple of 16 where there are as many: kernels work on so many neurons at a time.
int64_t StreamedNetwork::BlockRows(const Options& options, const Segment& segment,
                                   int64_t examples) {
  const int64_t wider = std::max(segment.inputs, examples);
  const int64_t rows = std::max<int64_t>(1, options.block_bytes / kFloatBytes / wider);
  return std::min(segment.outputs, rows < 16 ? rows : rows / 16 * 16);
}

StreamedNetwork::Sizes StreamedNetwork::SizesOf(const std::vector<Segment>& segments,
                                                const Options& options, int64_t examples,
                                                bool keeps_last) {
  Sizes sizes;
  for (size_t s = 0; s < segments.size(); ++s) {
    const Segment& segment = segments[s];
    if (keeps_last || s + 1 < segments.size() || segment.linear == nullptr) {
      int64_t& activations = sizes.activations[s % 2];
      activations = std::max(activations, examples * segment.outputs);
    }
    if (segment.linear == nullptr) {
      size_t at = (s + static_cast<size_t>(segment.moves)) % 2;
      int64_t width = segment.inputs;
      for (const StagePlan* const stage : segment.behind) {
        sizes.activations[at] = std::max(sizes.activations[at], examples * width);
        if (!stage->is_elementwise()) at = 1 - at;
        width = stage->outputs;
      }
    }
    if (segment.linear == nullptr) continue;
    const int64_t rows = BlockRows(options, segment, examples);
    sizes.weights = std::max(sizes.weights, rows * segment.inputs);
    sizes.sums = std::max(sizes.sums, examples * rows);
  }
  return sizes;
}

int64_t StreamedNetwork::MemoryNeeded(const NetworkPlan& plan, const Options& options,
                                      int64_t calibration_examples, int64_t score_examples) {
  const std::vector<Segment> segments = SegmentsOf(plan);
  const int64_t calibrates =
      SizesOf(Calibrated(segments), options, calibration_examples, false).floats();
  const int64_t examples = std::min(options.examples_max, score_examples);
  const int64_t pass = std::max(calibrates, SizesOf(segments, options, examples, true).floats());
  const int64_t kept = KeptFloats(plan, options.batch_max, /*trains=*/false);
  return (HeldFloats(plan) + plan.constants + kept + pass) * kFloatBytes +
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
  // Segment by segment, each is read by the next one alone.
  if (!IsChain(plan)) {
    return absl::UnimplementedError(
        "model.layers: evaluation in blocks wants a chain of layers, got branches");
  }
  return std::unique_ptr<StreamedNetwork>(
      new StreamedNetwork(model, options, std::move(plan), backend));
}

StreamedNetwork::StreamedNetwork(const v1::Model& model, const Options& options, NetworkPlan plan,
                                 Backend& backend)
    : model_(model),
      options_(options),
      plan_(std::move(plan)),
      segments_(SegmentsOf(plan_)),
      backend_(backend),
      staging_(&backend.memory()) {}

absl::Status StreamedNetwork::Begin(RowSource* source, std::vector<float> factors) {
  source_ = source;
  factors_ = std::move(factors);
  Memory& memory = backend_.memory();
  if (sums_.size() == 0) {
    TESSERA_ASSIGN_OR_RETURN(held_, Buffer<float>::Create(memory, HeldFloats(plan_)));
    TESSERA_ASSIGN_OR_RETURN(constants_, Buffer<float>::Create(memory, plan_.constants));
    TESSERA_ASSIGN_OR_RETURN(sums_, Buffer<LossSums>::Create(memory, 1));
    TESSERA_ASSIGN_OR_RETURN(held_view_,
                             HostView<float>::Create(memory, held_.data(), held_.size()));
    TESSERA_ASSIGN_OR_RETURN(sums_view_, HostView<LossSums>::Create(memory, sums_.data(), 1));
  }
  const std::vector<bool> is_held = HeldOf(plan_);
  held_offsets_.clear();
  int64_t offset = 0;
  for (size_t p = 0; p < is_held.size(); ++p) {
    const ParameterSpec& spec = plan_.shape.parameters[p];
    held_offsets_.push_back(offset);
    if (!is_held[p]) continue;
    TESSERA_RETURN_IF_ERROR(
        source_->ReadRows({static_cast<int>(p), 0, spec.rows},
                          {held_view_.data() + offset, static_cast<size_t>(spec.size())}));
    offset += spec.size();
  }
  held_view_.Send();
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

absl::StatusOr<StreamedNetwork::Buffers> StreamedNetwork::Allocate(
    const std::vector<Segment>& segments, int64_t examples, bool keeps_last) {
  const Sizes sizes = SizesOf(segments, options_, examples, keeps_last);
  Memory& memory = backend_.memory();
  Buffers buffers;
  buffers.examples = examples;
  TESSERA_ASSIGN_OR_RETURN(buffers.weights, Buffer<float>::Create(memory, sizes.weights));
  TESSERA_ASSIGN_OR_RETURN(buffers.weights_view,
                           HostView<float>::Create(memory, buffers.weights.data(), sizes.weights));
  TESSERA_ASSIGN_OR_RETURN(buffers.sums, Buffer<float>::Create(memory, sizes.sums));
  for (int i = 0; i < 2; ++i) {
    TESSERA_ASSIGN_OR_RETURN(buffers.activations[i],
                             Buffer<float>::Create(memory, sizes.activations[i]));
  }
  return buffers;
}

absl::StatusOr<std::vector<float>> StreamedNetwork::Calibrate(ExampleSource* examples) {
  if (plan_.constants == 0) return std::vector<float>();
  const int64_t count = examples->count();
  if (count == 0) {
    return absl::InvalidArgumentError("calibration: the sample is empty, want at least one row");
  }
  const std::vector<Segment> segments = Calibrated(segments_);
  TESSERA_ASSIGN_OR_RETURN(Buffers buffers, Allocate(segments, count, /*keeps_last=*/false));
  TESSERA_RETURN_IF_ERROR(Run(segments, {examples, 0, count, true, &buffers}).status());
  std::vector<float> constants(plan_.constants);
  backend_.memory().CopyOut(constants_.data(), constants_.bytes(), constants.data());
  TESSERA_RETURN_IF_ERROR(backend_.Finish());
  return constants;
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
  TESSERA_ASSIGN_OR_RETURN(
      Buffers buffers,
      Allocate(segments_, std::min(options_.examples_max, all), /*keeps_last=*/true));
  Scores scores;
  for (int64_t begin = 0; begin < all; begin += options_.examples_max) {
    const int64_t count = std::min(options_.examples_max, all - begin);
    TESSERA_ASSIGN_OR_RETURN(const float* const logits,
                             Run(segments_, {examples, begin, count, false, &buffers}));
    for (int64_t row = 0; row < count; row += options_.batch_max) {
      Batch batch = examples->Labelled(begin + row, std::min(options_.batch_max, count - row));
      batch.inputs = nullptr;
      TESSERA_ASSIGN_OR_RETURN(batch, staging_.Stage(batch, plan_.shape.inputs(), outputs));
      ComputeLoss(model_, batch, outputs, logits + row * outputs, nullptr, sums_.data(), backend_);
      sums_view_.Fetch();
      TESSERA_RETURN_IF_ERROR(backend_.Finish());
      scores += ScoresOf(*sums_view_.data(), batch.rows);
    }
  }
  return scores;
}

absl::StatusOr<const float*> StreamedNetwork::Run(const std::vector<Segment>& segments,
                                                  const Pass& pass) {
  const float* x = nullptr;  // null: the examples' own inputs
  for (size_t s = 0; s < segments.size(); ++s) {
    const Segment& segment = segments[s];
    float* const y = pass.buffers->activations[s % 2].data();
    if (segment.linear == nullptr) {
      TESSERA_RETURN_IF_ERROR(RunWhole(segments, s, pass));
      x = y;
      continue;
    }
    const bool keeps = !pass.calibrates || s + 1 < segments.size();
    const int64_t block_rows = BlockRows(options_, segment, pass.buffers->examples);
    float* const sums = pass.buffers->sums.data();
    for (int64_t first = 0; first < segment.outputs; first += block_rows) {
      const int64_t width = std::min(block_rows, segment.outputs - first);
      const RowRange rows{segment.linear->weight, first, first + width};
      TESSERA_RETURN_IF_ERROR(ReadBlock(rows, segment.inputs, &pass.buffers->weights_view));
      TESSERA_RETURN_IF_ERROR(Multiply(segment, rows, x, pass));
      SendThrough(segment, pass, first, width, sums);
      if (keeps) {
        backend_.memory().CopyRows(sums, width * kFloatBytes, pass.count, width * kFloatBytes,
                                   y + first, segment.outputs * kFloatBytes);
      }
      // The next block is read where this one lies.
      TESSERA_RETURN_IF_ERROR(backend_.Finish());
    }
    x = y;
  }
  return x;
}

absl::Status StreamedNetwork::RunWhole(const std::vector<Segment>& segments, size_t s,
                                       const Pass& pass) {
  const Segment& segment = segments[s];
  // The moves end in the segment's own activations. A segment behind others has one move, from theirs.
  const size_t from = (s + static_cast<size_t>(segment.moves)) % 2;
  float* here = pass.buffers->activations[from].data();
  float* there = pass.buffers->activations[1 - from].data();
  if (s == 0) TESSERA_RETURN_IF_ERROR(CopyInputs(pass, segment.inputs, here));
  float* constants = constants_.data() + segment.constants;
  for (const StagePlan* const stage : segment.behind) {
    if (stage->is_elementwise()) {
      const Image& image = stage->map.from;
      ApplyElementwise(*stage, {{pass.count * image.positions(), image.channels}, 0},
                       pass.calibrates, constants, here);
      constants += stage->constants();
      continue;
    }
    for (int64_t i = 0; i < pass.count; i += options_.batch_max) {
      const float* const x = here + i * stage->inputs;
      StageOf(*stage).Evaluate(std::min(options_.batch_max, pass.count - i), {&x, 1}, nullptr,
                               there + i * stage->outputs);
    }
    std::swap(here, there);
  }
  return backend_.Finish();
}

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
  const absl::Span<float> block(to->data(), static_cast<size_t>(rows.count() * columns));
  TESSERA_RETURN_IF_ERROR(source_->ReadRows(rows, block));
  const float factor = factors_.empty() ? 1.0f : factors_[rows.parameter];
  if (factor != 1.0f) {
    for (float& w : block) w *= factor;
  }
  to->Send();
  return absl::OkStatus();
}

absl::Status StreamedNetwork::Multiply(const Segment& segment, const RowRange& rows, const float* x,
                                       const Pass& pass) {
  const int64_t width = rows.count();
  const float* const weights = pass.buffers->weights.data();
  const float* bias = Held(segment.linear->bias);
  if (bias != nullptr) bias += rows.row_begin;
  for (int64_t i = 0; i < pass.count; i += options_.batch_max) {
    const int64_t count = std::min(options_.batch_max, pass.count - i);
    const LinearShape shape{count, segment.inputs, width};
    float* const y = pass.buffers->sums.data() + i * width;
    if (x != nullptr) {
      backend_.linear().Forward(shape, x + i * segment.inputs, weights, bias, y);
      continue;
    }
    TESSERA_ASSIGN_OR_RETURN(
        const Batch batch,
        staging_.Stage(pass.examples->Inputs(pass.begin + i, count), segment.inputs, 0));
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

void StreamedNetwork::SendThrough(const Segment& segment, const Pass& pass, int64_t first,
                                  int64_t width, float* sums) {
  float* constants = constants_.data() + segment.constants;
  for (const StagePlan* const stage : segment.behind) {
    ApplyElementwise(*stage, {{pass.count, width}, first}, pass.calibrates, constants, sums);
    constants += stage->constants();
  }
}

void StreamedNetwork::ApplyElementwise(const StagePlan& plan, const UnitColumns& columns,
                                       bool calibrates, float* constants, float* values) {
  if (plan.is_off_in_evaluation()) return;
  Stage& stage = StageOf(plan);
  if (calibrates) stage.Calibrate(columns, values, constants);
  stage.EvaluateColumns(columns, values, constants, values);
}

}  // namespace tessera
