// A learner whose minibatches are computed by the program that called the client library.
#ifndef TESSERA_WORKER_CLIENT_CALLER_LEARNER_H_
#define TESSERA_WORKER_CLIENT_CALLER_LEARNER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "common/base/ids.h"
#include "common/layout/parameters.h"
#include "common/method/recipe.h"
#include "kernels/backend.h"
#include "kernels/memory.h"
#include "proto/job.pb.h"
#include "worker/client/turns.h"
#include "worker/exchange/exchange_keys.h"
#include "worker/exchange/fragment_keys.h"
#include "worker/train/learner.h"

namespace tessera {

// The tensor of a worker's file that has what the caller saved.
constexpr char kCallerState[] = "caller";

// What a caller's arrays are of, where the job has subnets: its part of one round, or the whole model.
struct CallerCut {
  bool is_whole = false;
  // Whole for one evaluation: whoever gives no arrays then scores no rows.
  bool is_evaluation = false;
  uint64_t round = 0;
  uint32_t site = 0;
  uint32_t sites = 1;
  // The units of each group that is cut, ascending, from group 1 on.
  std::vector<std::vector<uint32_t>> units;
  // Of each parameter.
  struct Extents {
    int64_t rows = 0;
    int64_t columns = 0;
  };
  std::vector<Extents> extents;
};

// What the two threads tell each other beside whose turn it is (Turns).
struct CallerExchange {
  // The caller's answers.
  std::vector<float*> values;           // one array for each exchanged parameter
  std::vector<const float*> gradients;  // one for each parameter, where gradients are pushed
  uint64_t examples = 0;                // of a minibatch
  double loss = 0;
  Scores scores;
  std::string state;  // what is saved of the caller
  // What the caller is told.
  TrainPoint point;
  std::vector<uint32_t> rows;  // of the minibatch; empty where the job has no data
  std::string loaded_state;    // what a checkpoint had of the caller
  // Of the arrays that are asked for next, or that there are now. Where a question is withdrawn the caller may read it
  // while the worker's thread is at the next one's. nullptr: of jobs without subnets.
  std::shared_ptr<const CallerCut> cut() const {
    absl::MutexLock lock(&cut_mutex);
    return cut_now;
  }
  void SetCut(CallerCut cut) {
    auto made = std::make_shared<const CallerCut>(std::move(cut));
    absl::MutexLock lock(&cut_mutex);
    cut_now = std::move(made);
  }

  mutable absl::Mutex cut_mutex;
  std::shared_ptr<const CallerCut> cut_now ABSL_GUARDED_BY(cut_mutex);
};

// Whether a caller can be given the job's model at all.
//   kUnimplemented  the model wants what a caller cannot give
absl::Status CheckCallersJob(const v1::Job& job, const Recipe& recipe);

// Arithmetic beside the caller's is on the CPU: a delta is the caller's values minus those of the last pull, of which
// the learner keeps a copy. Gradients are sent from the caller's arrays, and values come into them. Gradients that the
// job clips (train.clip_norm) are copied first, and the caller's are left as they are.
//
// One thread, the train loop's.
class CallerLearner final : public Learner {
 public:
  struct Options {
    v1::Job job;
    Recipe recipe;
    ModelShape exchanged;  // ExchangedShape
    Rank rank;
    Exchange first{1};  // its first exchange
  };

  // `backend` is the CPU's; all but the options outlive the learner.
  //   kUnimplemented      the method cuts the model in two, or CheckCallersJob's; CallerSubnetLearner trains subnets
  //   kResourceExhausted  no memory
  static absl::StatusOr<std::unique_ptr<CallerLearner>> Create(Options options, Backend* backend,
                                                               Turns* turns,
                                                               CallerExchange* exchange);

  // Waits for the memory into which values come. Before any other method.
  absl::Status AwaitMemory();

  const ParameterArrays& values() const override { return values_; }
  const KeySet& value_keys() const override {
    if (fragments_ != nullptr) return fragments_->value_keys();
    return core_ ? core_->value_keys() : keys_;
  }
  const ConstParameterArrays& update() const override { return updates_[base_]; }
  const KeySet& update_keys() const override {
    if (fragments_ != nullptr) return fragments_->update_keys();
    return core_ ? core_->update_keys() : keys_;
  }
  bool keeps_values() override { return core_ != nullptr || fragments_ != nullptr; }
  uint64_t examples(uint64_t rows) const override { return exchange_.examples; }
  ExchangeKeys* exchange_keys() override { return core_.get(); }

  absl::StatusOr<Losses> Train(const Dataset& data, absl::Span<const uint32_t> rows,
                               const TrainPoint& point) override;
  absl::Status FormUpdate() override;
  absl::Status AdoptValues() override;
  absl::Status AdoptEarlierValues() override;
  absl::Status TrainOn() override;
  absl::Status Recut(const SubnetPlace& place) override;
  absl::Status BeginTail() override;
  absl::Status PrepareToSave() override;
  absl::StatusOr<PrivateState> private_state() override;
  absl::Status AdoptPrivateState() override;
  bool pulls_apart() const override { return true; }
  absl::StatusOr<ExchangeResult> BeginEvaluation(ParameterClient* servers, Exchange after,
                                                 IdleNotice word) override;
  absl::StatusOr<bool> EndEvaluation() override;
  absl::StatusOr<std::vector<float>> Calibrate(const Dataset& data,
                                               absl::Span<const uint32_t> rows) override;
  absl::StatusOr<Scores> Score(const Dataset& data, absl::Span<const uint32_t> rows,
                               absl::Span<const float> constants) override;

 private:
  CallerLearner(Options options, Backend* backend, Turns* turns, CallerExchange* exchange)
      : options_(std::move(options)), backend_(*backend), turns_(*turns), exchange_(*exchange) {}
  absl::Status Allocate();
  bool pushes_gradient() const { return options_.recipe.payload == PayloadKind::kGradient; }
  bool clips() const { return options_.job.train().clip_norm() > 0; }
  bool overlaps() const { return options_.recipe.overlaps; }
  // Values come into arrays of their own.
  bool receives_apart() const { return overlaps() || fragments_ != nullptr; }
  // A checkpoint has the caller's values as they were when an exchange of a fragment began.
  bool keeps_begun() const;
  // The caller's array of exchanged parameter i, and its entries.
  float* held(size_t i) const { return exchange_.values[i]; }
  int64_t size(size_t i) const { return options_.exchanged.parameters[i].size(); }
  size_t count() const { return options_.exchanged.parameters.size(); }
  // values_ are the arrays that the caller has given last, where they are not the learner's own.
  void TakeMemory();
  // updates_[0] becomes the caller's gradients, clipped where the job says so.
  absl::Status TakeGradients();
  // The base becomes what the caller holds.
  void KeepBase();
  // What has come of these entries becomes the base, and its share of what the caller holds.
  void TakeUp(absl::Span<const FragmentKeys::Run> runs);
  // Each array becomes what the caller holds, or the other way round.
  void CopyHeld(std::vector<Buffer<float>>* to);
  void CopyToHeld(const std::vector<Buffer<float>>& from);
  absl::Status AskForState();

  const Options options_;
  Backend& backend_;
  Turns& turns_;
  CallerExchange& exchange_;
  KeySet keys_;
  std::unique_ptr<ExchangeKeys> core_;       // where exchanges move a core
  std::unique_ptr<FragmentKeys> fragments_;  // where they move fragments
  ParameterArrays values_;
  // What the delta is formed from, and then the delta: two where exchanges overlap, as one is on its way while the
  // other is kept. Of gradients none.
  std::vector<Buffer<float>> bases_[2];
  ConstParameterArrays updates_[2];
  int base_ = 0;
  std::vector<Buffer<float>>
      incoming_;  // where exchanges overlap or are of fragments: values as they come
  std::vector<Buffer<float>> begun_;  // where keeps_begun()
  bool ahead_ = false;                // of the last exchange
  // Where gradients are clipped: all of them, one behind the other, and what they are multiplied by.
  Buffer<float> clipped_;
  Buffer<float> clip_factor_;
};

}  // namespace tessera

#endif  // TESSERA_WORKER_CLIENT_CALLER_LEARNER_H_
