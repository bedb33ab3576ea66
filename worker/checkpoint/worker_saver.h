// Writes a worker's file of each checkpoint, and takes up what was saved.
#ifndef TESSERA_WORKER_CHECKPOINT_WORKER_SAVER_H_
#define TESSERA_WORKER_CHECKPOINT_WORKER_SAVER_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
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
#include "common/base/wakeup.h"
#include "common/checkpoint/checkpoint.h"
#include "common/checkpoint/manifest.h"
#include "common/checkpoint/model_facts.h"
#include "common/checkpoint/part_file.h"
#include "common/checkpoint/safetensors_reader.h"
#include "common/method/recipe.h"
#include "proto/coordinator.pb.h"
#include "worker/checkpoint/worker_file.h"
#include "worker/train/worker_state.h"

namespace tessera {

// Runs two threads from construction to destruction: one writes, the other tells, so that the coordinator hears of
// what is not written while the disk hangs. The calls are the train loop's thread's.
class WorkerSaver final : public WorkerStore {
 public:
  struct Options {
    // Opens the worker's file of a checkpoint; empty: nothing is written.
    OpenPart parts;
    // The folder of what the job goes on from; empty: nothing.
    std::string restored;
    Rank rank;
    // Members that the job has; with others than were saved, in number or by their ranks, nobody takes up the state of
    // its rank, but what codecs held back is dealt to those there are, who push it: rank r's goes to rank r modulo
    // this. What a codec has learned goes with the first of them.
    int64_t workers = 1;
    // Tells the coordinator, on the telling thread and the train loop's, also at once.
    std::function<absl::StatusOr<v1::SavedReply>(v1::SavedRequest)> tell;
    // The job goes back to a checkpoint of its own, under the ranks that its members had: each takes up the
    // file of its rank, however many were saved, and nothing is dealt.
    bool goes_back = false;
    // Recipe::push_weight. What was held back is taken up times what a push of the saved job weighed over what one of
    // this job weighs (PushesInMean), so that it changes the model by as much as it would have.
    PushWeight push_weight = PushWeight::kOfMean;
    // SumOf the manifest in `restored`; 0: any.
    uint64_t restored_sum = 0;
    // Recipe::split. What was held back is then dealt within each half of the layers: what the j-th of its members
    // in the manifest had goes to the one in place j modulo those it has now. Also where members are as many, but
    // one's rank has another half. The mean of both halves is over the minibatches of those in front, so that
    // these are counted rather than `workers`.
    std::optional<LayerSplit> split = std::nullopt;
    // Recipe::payload. What was held back of another kind is dropped.
    PayloadKind payload = PayloadKind::kGradient;
    // Recipe::pushes.
    int64_t pushes = 1;
    // How this worker reads its rows, and the sum of those it trains on; each file has it.
    ModelFacts facts = {};
    // Where the folder `restored` was made for this worker alone, with no more in it than the manifest: brings each
    // file that is wanted. The folder goes once the worker has read it. Empty: all of the checkpoint is there.
    BringFile bring = nullptr;
  };

  explicit WorkerSaver(Options options);
  // Finishes what is being written, and says so now and then where that takes long.
  ~WorkerSaver();

  // Never waits: while a file is being written, the coordinator is told that this one is not.
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

  void Write();
  void Tell();
  // Whether all is written, and told.
  bool IsIdle();
  void AwaitIdle();
  absl::StatusOr<std::optional<WorkerCursor>> LoadFrom(const Checkpoint& checkpoint,
                                                       const PrivateState& state);
  std::string PathOf(const CheckpointFile& listed) const;
  absl::Status Bring(const CheckpointFile& listed) const;
  // Opens another worker's file, which need not have the right sum.
  absl::StatusOr<std::unique_ptr<SafetensorsReader>> OpenSaved(const CheckpointFile& listed) const;
  // Says how the workers that were saved differ from those of now; empty: they do not.
  std::string OtherWorkers(const Manifest& manifest) const;
  // What was held back is taken up times this; `in_mean` of those that were saved were in the mean of their pushes, of
  // which `takers` are now.
  float FactorFrom(const Manifest& manifest, int64_t in_mean, int64_t takers) const;
  // Takes up the state in the file of its own rank.
  absl::StatusOr<std::optional<WorkerCursor>> TakeUp(const Manifest& manifest,
                                                     const CheckpointFile& listed,
                                                     const PrivateState& state) const;
  std::optional<WorkerCursor> Drop(const Manifest& manifest, absl::string_view why,
                                   int residuals_of) const;
  // The file of this rank is of a worker that had a half of the layers, and state is of all of them.
  absl::StatusOr<bool> WasHalf(const Manifest& manifest, const PrivateState& state) const;
  absl::StatusOr<Deal> DealAmongAll(const Manifest& manifest, const PrivateState& state) const;
  absl::StatusOr<Deal> DealInHalves(const Checkpoint& checkpoint) const;
  // Returns of how many files it had any.
  absl::StatusOr<int> TakeResiduals(const Deal& deal, const PrivateState& state) const;

  const Options options_;
  WorkerCopy copy_;  // the writing thread's while task_ is set, else the train loop's
  absl::Mutex mutex_;
  std::optional<Task> task_ ABSL_GUARDED_BY(mutex_);
  std::deque<v1::SavedRequest> untold_ ABSL_GUARDED_BY(mutex_);  // the first is being told
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  Wakeup told_;
  std::thread writer_;
  std::thread teller_;
};

}  // namespace tessera

#endif  // TESSERA_WORKER_CHECKPOINT_WORKER_SAVER_H_
