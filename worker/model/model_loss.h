// The loss that a model names, computed by the backend's kernel for it.
#ifndef TESSERA_WORKER_MODEL_MODEL_LOSS_H_
#define TESSERA_WORKER_MODEL_MODEL_LOSS_H_

#include <cstdint>

#include "absl/status/status.h"
#include "common/layout/losses.h"
#include "common/layout/parameters.h"
#include "kernels/backend.h"
#include "proto/job.pb.h"
#include "worker/model/batch.h"

namespace tessera {

// kInvalidArgument: model.loss is another word.
absl::Status CheckLoss(const v1::Model& model);

// Queued: what `logits` [batch.rows, places, outputs] say of the labels or targets of `batch`. `gradient` of
// the same size may be null: then nothing is trained, and labels are not smoothed. Of a piece, `sums` become those of
// the minibatch as far as it has come.
void ComputeLoss(const v1::Model& model, const ModelShape& shape, const Batch& batch,
                 const float* logits, float* gradient, LossSums* sums, Backend& backend);

// The scores of so many predictions, whose sums are there.
Scores ScoresOf(const LossSums& sums, int64_t predictions);

}  // namespace tessera

#endif  // TESSERA_WORKER_MODEL_MODEL_LOSS_H_
