// The table of the kinds of stages that networks are made of.
#ifndef TESSERA_WORKER_MODEL_STAGE_KINDS_H_
#define TESSERA_WORKER_MODEL_STAGE_KINDS_H_

#include "absl/types/span.h"
#include "proto/job.pb.h"
#include "worker/model/stage_kind.h"

namespace tessera {

// Returns the kinds of stages, one for each of LayerKinds().
absl::Span<const StageKind> StageKinds();

// The entry for a layer of a kind that LayerKinds() has.
const StageKind& StageKindOf(const v1::Layer& layer);

}  // namespace tessera

#endif  // TESSERA_WORKER_MODEL_STAGE_KINDS_H_
