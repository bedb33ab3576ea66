// The stages of sequences of tokens: the embedding, and the heads of attention between an attention layer's products.
#ifndef TESSERA_WORKER_MODEL_SEQUENCE_STAGES_H_
#define TESSERA_WORKER_MODEL_SEQUENCE_STAGES_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "worker/model/stage.h"
#include "worker/model/stage_kind.h"

namespace tessera {

StageKind EmbeddingStageKind();
StageKind AttentionStageKind();

// Reads tokens, as whole numbers. Where a layer behind it is tied to its weight, that layer's Backward has written a
// gradient of the weight, to which this one's is added. In place of a bias it has the positions.
class EmbeddingStage final : public Stage {
 public:
  EmbeddingStage(const StagePlan& plan, const StageOptions& options, Backend& backend);

  void Forward(int64_t rows, const StageInputs& x, float* y) override;
  void Backward(int64_t rows, const StageInputs& x, const float* y, const float* dy,
                const StageGradients& to, const InputGradients& dx) override;
  void Evaluate(int64_t rows, const StageInputs& x, const float* constants, float* y) override;

 private:
  EmbeddingShape Shape(int64_t rows) const;

  const EmbeddingShape of_row_;
  const bool is_tied_;
  const StageParameters parameters_;
  Backend& backend_;
};

// Reads queries, keys and values of each place. Keeps the logarithm of each query's sum from Forward to Backward.
class AttentionStage final : public Stage {
 public:
  // kResourceExhausted: no memory.
  static absl::StatusOr<std::unique_ptr<Stage>> Create(const StagePlan& plan,
                                                       const StageOptions& options,
                                                       Backend& backend);
  // Floats that it keeps (StageKind::kept_floats).
  static int64_t KeptFloats(const StagePlan& plan, int64_t batch_max, bool trains);

  void Forward(int64_t rows, const StageInputs& x, float* y) override;
  void Backward(int64_t rows, const StageInputs& x, const float* y, const float* dy,
                const StageGradients& to, const InputGradients& dx) override;
  void Evaluate(int64_t rows, const StageInputs& x, const float* constants, float* y) override;

 private:
  AttentionStage(const StagePlan& plan, const StageOptions& options, Backend& backend);
  AttentionShape Shape(int64_t rows) const;

  const AttentionShape of_row_;
  const AttentionDropout dropout_;
  const bool is_bf16_;
  Buffer<float> log_sums_;
  Backend& backend_;
};

}  // namespace tessera

#endif  // TESSERA_WORKER_MODEL_SEQUENCE_STAGES_H_
