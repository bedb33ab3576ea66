#include "worker/model/sequence_stages.h"

#include "common/base/check.h"

namespace tessera {
namespace {

AttentionShape AttentionOfRow(const StagePlan& plan) {
  const v1::Attention& keys = plan.settings.attention();
  AttentionShape shape;
  shape.rows = 1;
  shape.places = plan.map.from.places();
  shape.heads = keys.heads();
  shape.head_size = keys.head_size();
  shape.causal = keys.causal();
  return shape;
}

}  // namespace

StageKind EmbeddingStageKind() {
  StageKind kind{v1::Layer::kEmbedding, MakeStage<EmbeddingStage>};
  kind.backward_reads_y = false;
  return kind;
}

StageKind AttentionStageKind() {
  StageKind kind{v1::Layer::kAttention, AttentionStage::Create};
  kind.draws = true;
  kind.kept_floats = AttentionStage::KeptFloats;
  kind.scratch_bytes = [](const StagePlan& plan, int64_t rows, Precision,
                          Backend& backend) -> absl::StatusOr<int64_t> {
    AttentionShape shape = AttentionOfRow(plan);
    shape.rows = rows;
    return backend.attention().ScratchBytes(shape);
  };
  return kind;
}

// A row of the weight for each token, a row of the bias for each place.
EmbeddingStage::EmbeddingStage(const StagePlan& plan, const StageOptions& options, Backend& backend)
    : of_row_{1, plan.map.from.places(), plan.weight_size / plan.map.to.channels,
              plan.map.to.channels},
      is_tied_(plan.weight_is_tied),
      parameters_(options.parameters),
      backend_(backend) {}

EmbeddingShape EmbeddingStage::Shape(int64_t rows) const {
  EmbeddingShape shape = of_row_;
  shape.rows = rows;
  return shape;
}

void EmbeddingStage::Forward(int64_t rows, const StageInputs& x, float* y) {
  backend_.embedding().Forward(Shape(rows), x[0], parameters_.weight, parameters_.bias, y);
}

void EmbeddingStage::Backward(int64_t rows, const StageInputs& x, const float*, const float* dy,
                              const StageGradients& to, const InputGradients& dx) {
  // Tokens have no gradient: an embedding is the first layer.
  TESSERA_CHECK(dx[0] == nullptr);
  // Where the output layer is tied to the weight, its gradient is there already: it is behind this stage in the
  // network, and its backward pass came first.
  backend_.embedding().Backward(Shape(rows), x[0], dy, is_tied_ ? WriteMode::kAdd : to.mode,
                                to.weight, to.mode, to.bias);
}

void EmbeddingStage::Evaluate(int64_t rows, const StageInputs& x, const float*, float* y) {
  Forward(rows, x, y);
}

int64_t AttentionStage::KeptFloats(const StagePlan& plan, int64_t batch_max, bool trains) {
  // The logarithms of the softmax's sums. With them the backward pass computes attention anew, tile by tile, and keeps
  // nothing of [places, places].
  return trains ? batch_max * AttentionOfRow(plan).sums() : 0;
}

// Keyed by the layer, so that two layers drop different entries in one step.
AttentionStage::AttentionStage(const StagePlan& plan, const StageOptions& options, Backend& backend)
    : of_row_(AttentionOfRow(plan)),
      dropout_{options.dropout, static_cast<uint64_t>(plan.layer),
               plan.settings.attention().dropout()},
      is_bf16_(options.precision == Precision::kBf16),
      backend_(backend) {}

absl::StatusOr<std::unique_ptr<Stage>> AttentionStage::Create(const StagePlan& plan,
                                                              const StageOptions& options,
                                                              Backend& backend) {
  auto stage = std::unique_ptr<AttentionStage>(new AttentionStage(plan, options, backend));
  TESSERA_ASSIGN_OR_RETURN(
      stage->log_sums_,
      Buffer<float>::Create(backend.memory(), KeptFloats(plan, options.batch_max, options.trains)));
  return stage;
}

AttentionShape AttentionStage::Shape(int64_t rows) const {
  AttentionShape shape = of_row_;
  shape.rows = rows;
  shape.bf16 = is_bf16_;
  return shape;
}

void AttentionStage::Forward(int64_t rows, const StageInputs& x, float* y) {
  backend_.attention().Forward(Shape(rows), dropout_, x[0], y, log_sums_.data());
}

void AttentionStage::Backward(int64_t rows, const StageInputs& x, const float* y, const float* dy,
                              const StageGradients&, const InputGradients& dx) {
  if (dx[0] == nullptr) return;
  backend_.attention().Backward(Shape(rows), dropout_, {x[0], y, log_sums_.data(), dy}, dx[0]);
}

void AttentionStage::Evaluate(int64_t rows, const StageInputs& x, const float*, float* y) {
  // Evaluations are in f32.
  AttentionShape shape = Shape(rows);
  shape.bf16 = false;
  backend_.attention().Forward(shape, AttentionDropout(), x[0], y, nullptr);
}

}  // namespace tessera
