#include "worker/model/stage_kinds.h"

#include "common/base/check.h"
#include "worker/model/activation_stages.h"
#include "worker/model/batch_norm_stage.h"
#include "worker/model/block_stages.h"
#include "worker/model/image_stages.h"
#include "worker/model/norm_stages.h"
#include "worker/model/product_stage.h"
#include "worker/model/sequence_stages.h"

namespace tessera {

absl::Span<const StageKind> StageKinds() {
  static const StageKind kKinds[] = {
      LinearStageKind(),
      ConvolutionStageKind(),
      MaxPoolStageKind(),
      AveragePoolStageKind(),
      BatchNormStageKind(),
      ReluStageKind(),
      DropoutStageKind(),
      LayerNormStageKind(),
      GroupNormStageKind(),
      ResponseNormStageKind(),
      FunctionStageKind(v1::Layer::kGelu),
      FunctionStageKind(v1::Layer::kTanh),
      FunctionStageKind(v1::Layer::kSigmoid),
      FunctionStageKind(v1::Layer::kSilu),
      FunctionStageKind(v1::Layer::kLeakyRelu),
      EmbeddingStageKind(),
      AttentionStageKind(),
      SumStageKind(),
      ConcatStageKind(),
  };
  return kKinds;
}

const StageKind& StageKindOf(const v1::Layer& layer) {
  for (const StageKind& kind : StageKinds()) {
    if (kind.layer == layer.kind_case()) return kind;
  }
  TESSERA_CHECK(false);
  return StageKinds().front();
}

}  // namespace tessera
