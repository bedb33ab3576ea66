// A worker's file in a checkpoint: worker-<rank>.safetensors.
//
//   __metadata__   {"step", "exchange", "epoch", "examples", "train_loss", "loss_sum", "loss_count",
//                   "evaluation_due" (1 or 0), "local_steps"}: where the worker was, as decimal text;
//                   train_loss is not there where none is known yet; and common/checkpoint/model_facts.h's
//   tensors        first model_facts.h's: what the model is beside its parameters, in each worker's file the same;
//                   then PrivateState's arrays, F32, one dimension each: "state.<name>.<parameter>" of the worker's
//                  optimizer (StateNames; older files have the place there), "replica.<parameter>" where
//                  the worker's values are its own, "residual.<i>" of its codec, "codec": what that has
//                  learned of updates; and PrivateState's bytes, U8
#ifndef TESSERA_WORKER_CHECKPOINT_WORKER_FILE_H_
#define TESSERA_WORKER_CHECKPOINT_WORKER_FILE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/ids.h"
#include "common/checkpoint/checkpoint.h"
#include "common/checkpoint/model_facts.h"
#include "common/checkpoint/part_file.h"
#include "common/checkpoint/safetensors_reader.h"
#include "worker/train/worker_state.h"

namespace tessera {

// What a worker's file holds, copied from the worker.
struct WorkerCopy {
  ModelFacts facts;
  WorkerCursor cursor;
  uint64_t local_steps = 0;
  int64_t sites = 0;
  std::vector<std::pair<std::string, std::vector<float>>> arrays;
  std::vector<std::pair<std::string, std::string>> bytes;  // PrivateState::bytes
};

// A part (SafetensorsWriter::CreatePart) of a checkpoint in `folder`, which is there. DurableFile's codes.
absl::StatusOr<CheckpointFile> WriteWorkerFile(const std::string& folder, Rank rank,
                                               const WorkerCopy& copy);
// Writes worker `rank`'s file of the checkpoint for `folder_step` wherever `parts` keeps it: in a folder, or on
// servers' own disks. The codes of PartFile.
absl::StatusOr<CheckpointFile> WriteWorkerFile(const OpenPart& parts, uint64_t folder_step,
                                               Rank rank, const WorkerCopy& copy);
// Reads a file that is one of a checkpoint's and has the right sum. Arrays that the file does not have in this
// size are kInvalidArgument, and `state` may then be filled in part.
absl::StatusOr<WorkerCursor> ReadWorkerFile(const std::string& path, const PrivateState& state);

// Opens the file that `listed`, an entry of a manifest, names, and whose sum is the one there.
absl::StatusOr<std::unique_ptr<SafetensorsReader>> OpenListed(const std::string& path,
                                                              const CheckpointFile& listed);

}  // namespace tessera

#endif  // TESSERA_WORKER_CHECKPOINT_WORKER_FILE_H_
