// A worker's file in a checkpoint: worker-<rank>.safetensors.
//
//   __metadata__   {"step", "exchange", "epoch", "examples", "train_loss", "loss_sum", "loss_count",
//                   "evaluation_due" (1 or 0), "local_steps"}: where the worker was, as decimal text
//   tensors        PrivateState's arrays, F32, one dimension each: "state.<name>.<parameter>" of the worker's
//                  optimizer (StateNames; older files have the place there), "replica.<parameter>" where
//                  the worker's values are its own, "residual.<i>" of its codec, "codec": what that has
//                  learned of updates
#ifndef TESSERA_WORKER_CHECKPOINT_WORKER_SAVER_H_
#define TESSERA_WORKER_CHECKPOINT_WORKER_SAVER_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "common/base/ids.h"
#include "common/checkpoint/checkpoint.h"
#include "common/checkpoint/manifest.h"
#include "common/method/recipe.h"
#include "proto/coordinator.pb.h"
#include "worker/train/worker_state.h"

namespace tessera {

// What Save copies.
struct WorkerCopy {
  WorkerCursor cursor;
  uint64_t local_steps = 0;
  int64_t sites = 0;
  std::vector<std::pair<std::string, std::vector<float>>> arrays;
};

// A part (SafetensorsWriter::CreatePart) of a checkpoint in `folder`, which is there. DurableFile's codes.
absl::StatusOr<CheckpointFile> WriteWorkerFile(const std::string& folder, Rank rank,
                                               const WorkerCopy& copy);
// Of a file that is one of a checkpoint's and has the right sum. Arrays that the file does not have in this
// size are kInvalidArgument, and `state` may then be filled in part.
absl::StatusOr<WorkerCursor> ReadWorkerFile(const std::string& path, const PrivateState& state);

// Runs a thread from construction to destruction. The calls are the train loop's thread's.
class WorkerSaver final : public WorkerStore {
 public:
  struct Options {
    // checkpoint.directory; empty: nothing is written.
    std::string directory;
    // What the job goes on from; empty: nothing.
    std::string restored;
    Rank rank;
    // Members that the job has; with others than were saved nobody takes up the state of its rank, but what
    // codecs held back is dealt to those there are, who push it: rank r's goes to rank r modulo this. What a codec
    // has learned goes with the first of them.
    int64_t workers = 1;
    // Tells the coordinator, on either thread.
    std::function<absl::StatusOr<v1::SavedReply>(v1::SavedRequest)> tell;
    // The job goes back to a checkpoint of its own, under the ranks that its members had: each takes up the
    // file of its rank, however many were saved, and nothing is dealt.
    bool goes_back = false;
    // A push is no part of a mean over the members: what is dealt is then as it was. Otherwise it is dealt times
    // `workers` over those there were, so that the mean has the same of it.
    bool counts_by_itself = false;
    // SumOf the manifest in `restored`; 0: any.
    uint64_t restored_sum = 0;
    // Recipe::split. What was held back is then dealt within each half of the layers: what the j-th of its members
    // in the manifest had goes to the one in place j modulo those it has now. Also where members are as many, but
    // one's rank has another half. The mean of both halves is over the minibatches of those in front, so that
    // these are counted rather than `workers`.
    std::optional<LayerSplit> split = std::nullopt;
    // Recipe::payload. What was held back of another kind is dropped.
    PayloadKind payload = PayloadKind::kGradient;
  };

  explicit WorkerSaver(Options options);
  // Finishes what is being written.
  ~WorkerSaver();

  void Save(uint64_t number, uint64_t folder_step, const WorkerCursor& cursor,
            const PrivateState& state) override;
  void SaveLast(const WorkerCursor& cursor, const PrivateState& state) override;
  absl::StatusOr<std::optional<WorkerCursor>> Load(const PrivateState& state) override;

 private:
  struct Task {
    uint64_t number = 0;
    uint64_t folder_step = 0;
  };

  // What of the checkpoint is dealt to this worker.
  struct Deal {
    // Empty: nothing is dealt to anybody, each takes up the file of its rank. The same at all workers.
    std::string why;
    std::vector<const CheckpointFile*> files;
    float factor = 1;
  };

  void Run();
  void AwaitIdle();
  // Empty: as many workers as were saved.
  std::string OtherNumber(const Manifest& manifest) const;
  // The file of this rank is of a worker that had a half of the layers, and state is of all of them.
  absl::StatusOr<bool> WasHalf(const Manifest& manifest, const PrivateState& state) const;
  absl::StatusOr<Deal> DealAmongAll(const Manifest& manifest, const PrivateState& state) const;
  absl::StatusOr<Deal> DealInHalves(const Checkpoint& checkpoint) const;
  // Returns of how many files it had any.
  absl::StatusOr<int> TakeResiduals(const Deal& deal, const PrivateState& state) const;

  const Options options_;
  WorkerCopy copy_;  // the saving thread's while task_ is set, else the train loop's
  absl::Mutex mutex_;
  std::optional<Task> task_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace tessera

#endif  // TESSERA_WORKER_CHECKPOINT_WORKER_SAVER_H_
