// A linear worker's batches: they come in any order, and are taken in the order that every run has. Events in,
// decisions out: no lock, no wait, no clock.
//
// Waited for are those whose home this worker is (layer_workers.h), and those that have come before because they
// have lost theirs, until somebody joins whom they send to instead. One that comes for the first time since then is
// taken while the step is open: whether it has had an answer of this step already, from one that is gone by now, only
// it knows.
//
// Each member has one batch here at most, and the answer to its last one, which a repeated batch gets again: so a
// batch counts once, however often it comes.
#ifndef TESSERA_WORKER_ACTIVATIONS_ACTIVATION_QUEUE_H_
#define TESSERA_WORKER_ACTIVATIONS_ACTIVATION_QUEUE_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/base/ids.h"
#include "common/codec/payload.h"
#include "worker/activations/activation_exchange.h"
#include "worker/activations/layer_workers.h"

namespace tessera {

// The facts of a batch that is about to come.
struct ComingBatch {
  MemberId member;
  uint64_t step = 0;
  uint64_t rows = 0;
  bool has_classes = false;
  uint64_t payload_bytes = 0;
};

// What goes back. Shared, so that it may be sent while the next batch is computed.
struct GradientAnswer {
  bool too_late = false;
  double loss = 0;
  std::vector<float> gradient;
};

// Called once. nullptr: there will be no answer; a later call of the member has the place, or this worker ends.
using Answered = std::function<void(std::shared_ptr<const GradientAnswer>)>;

// What the caller is to do, outside of its locks. A batch of which it is not said keeps its call waiting.
struct DueAnswer {
  Answered answered;
  std::shared_ptr<const GradientAnswer> answer;

  void Send() const {
    if (answered) answered(answer);
  }
};

// One thread at a time.
class ActivationQueue {
 public:
  struct Options {
    MemberId member;
    LayerSplit split;
    // The most rows of a batch, the values of a row at the cut, and the model's outputs.
    int64_t rows_max = 0;
    int64_t features = 0;
    int64_t outputs = 0;
    // The job's labels are classes; otherwise targets.
    bool has_classes = true;
  };

  // A batch and the memory that it is a view of.
  struct Waiting {
    ComingBatch facts;
    ActivationReceiver::Batch batch;
    std::vector<float> values;  // activations, and behind them targets
    std::vector<int32_t> classes;
    Answered answered;
  };

  explicit ActivationQueue(const Options& options) : options_(options) {}

  // Takes up who takes part. A list of an older plan is passed over.
  void SetWorkers(const v1::WorkerList& list);

  // Before the payload comes.
  //   kInvalidArgument     sizes are not the job's
  //   kFailedPrecondition  the sender is no member with data that this worker knows of
  absl::Status Check(const ComingBatch& batch) const;
  // Unpacks a batch that Check has let through, so that it is ready to be delivered.
  //   kInvalidArgument     the payload has another size, a class that the model does not have, or a value that is
  //                        not finite
  static absl::StatusOr<std::unique_ptr<Waiting>> Unpack(const Options& options,
                                                         const ComingBatch& batch,
                                                         const Payload& payload, Answered answered);
  // Returns its answer where that is known already, and that of a call whose place it takes.
  DueAnswer Deliver(std::unique_ptr<Waiting> waiting);

  enum class Turn {
    kNoPlan,  // who takes part is not known yet
    kBatch,   // batch() is the next one of the step
    kMissing,  // that has yet to come; or nobody has data any more, which ends the job unless this worker Leaves
    kOver,  // there is none that is still to come; TakeLate has those that came in vain
  };
  // `step` is collected from now on, once the members of `plan` are known.
  Turn Take(uint64_t step, Generation plan);
  const ActivationReceiver::Batch& batch() const { return current_->batch; }
  // Answers the batch that was taken last.
  DueAnswer Answer(double loss, absl::Span<const float> gradient);
  std::vector<DueAnswer> TakeLate();
  // Takes all that wait for an answer. They get none.
  std::vector<DueAnswer> TakeAll();
  bool Has(Generation plan) const { return workers_.generation() >= plan; }
  // Batches that have come and are not taken yet, of all steps.
  size_t waiting() const { return waiting_.size(); }
  // The workers for whom Take waits, by rank.
  std::vector<Rank> Missing() const;
  // This worker is to leave: it waits for nobody if nobody has data.
  void Leave() { leaves_ = true; }

  const Options& options() const { return options_; }

 private:
  bool HasCome(MemberId member) const;
  void Begin(uint64_t step);
  // The workers that are waited for in step_, by rank.
  std::vector<LayerWorker> Expected() const;
  Turn TakeFrom(MemberId member, Rank rank);

  const Options options_;
  LayerWorkers workers_;
  // The step that is collected, and those whose batches of it were taken.
  std::optional<uint64_t> step_;
  std::set<MemberId> taken_;
  // The members that have sent batches, and the step of the first one since they sent elsewhere.
  std::map<MemberId, uint64_t> adopted_;
  bool is_over_ = false;
  bool leaves_ = false;
  std::map<MemberId, std::unique_ptr<Waiting>> waiting_;
  struct Last {
    uint64_t step = 0;
    std::shared_ptr<const GradientAnswer> answer;
  };
  std::map<MemberId, Last> last_;
  std::unique_ptr<Waiting> current_;
  bool is_answered_ = true;  // the current one
};

}  // namespace tessera

#endif  // TESSERA_WORKER_ACTIVATIONS_ACTIVATION_QUEUE_H_
