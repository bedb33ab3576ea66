#include "worker/model/stage_kinds.h"

#include <utility>
#include <vector>

#include "common/base/check.h"
#include "worker/model/activation_stages.h"
#include "worker/model/batch_norm_stage.h"
#include "worker/model/block_stages.h"
#include "worker/model/image_stages.h"
#include "worker/model/norm_stages.h"
#include "worker/model/product_stage.h"
#include "worker/model/sequence_stages.h"

namespace tessera {
namespace {

std::vector<StageKind> AllKinds() {
  std::vector<StageKind> kinds = {
      LinearStageKind(),    ConvolutionStageKind(),  MaxPoolStageKind(),   AveragePoolStageKind(),
      BatchNormStageKind(), ReluStageKind(),         DropoutStageKind(),   LayerNormStageKind(),
      GroupNormStageKind(), ResponseNormStageKind(), EmbeddingStageKind(), AttentionStageKind(),
      SumStageKind(),       ConcatStageKind(),
  };
  for (StageKind& kind : FunctionStageKinds()) kinds.push_back(std::move(kind));
  return kinds;
}

}  // namespace

absl::Span<const StageKind> StageKinds() {
  static const auto* const kinds = new std::vector<StageKind>(AllKinds());
  return *kinds;
}

const StageKind& StageKindOf(const v1::Layer& layer) {
  for (const StageKind& kind : StageKinds()) {
    if (kind.layer == layer.kind_case()) return kind;
  }
  TESSERA_CHECK(false);
  return StageKinds().front();
}

}  // namespace tessera
