// What a worker does at the end of its training, and at the end of training alone.
#include <catch2/catch.hpp>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "tests/worker/train/forwarding_client.h"
#include "tests/worker/train/lone_coordination.h"
#include "tests/worker/train/lone_worker.h"
#include "worker/train/forwarding_learner.h"
#include "worker/train/train_loop.h"

namespace tessera {
namespace {

// Remembers which pushes were to bring what was held back.
class FlushNotes final : public ForwardingClient {
 public:
  using ForwardingClient::ForwardingClient;
  absl::StatusOr<ExchangeResult> PushPull(const OutgoingPush& push, const KeySet& update_keys,
                                          const ConstParameterArrays& update,
                                          const KeySet& value_keys,
                                          const ParameterArrays& values) override {
    pushed = push.exchange;
    if (push.flush) flushed.push_back(push.exchange);
    if (on_push) on_push();
    return ForwardingClient::PushPull(push, update_keys, update, value_keys, values);
  }

  Exchange pushed{0};
  std::vector<Exchange> flushed;
  std::function<void()> on_push;
};

TEST_CASE(
    "the last push of a job that ends or is drained brings what was held back, and no other does",
    "[train]") {
  // Where members advance on their own the exchange that they are told is followed by one that rests.
  const bool lockstep = GENERATE(true, false);
  const uint64_t drain = GENERATE(0, 14);
  const bool flush = GENERATE(true, false);
  CAPTURE(lockstep, drain, flush);
  LoneWorker worker({lockstep ? "method={local_sgd: {local_steps: 2}}"
                              : "method={ssp: {bound: 1, local_steps: 2}}",
                     "codec={push: int8, error_feedback: true}",
                     flush ? "codec.flush=true" : "codec.flush=false"});
  FlushNotes notes(&worker.client);
  LoneCoordination coordination(0, 1, 112);
  coordination.drain = Exchange(drain);
  if (drain > 0) coordination.stop_at_correct = 0;
  TrainLoop loop(worker.options(), &worker.data, worker.replica.get(), &notes, &coordination);
  REQUIRE(loop.Run().ok());
  CHECK(notes.pushed == Exchange(drain == 0 ? 25 : lockstep ? drain : drain + 1));
  CHECK(notes.flushed == (flush ? std::vector<Exchange>{notes.pushed} : std::vector<Exchange>()));
}

class StepNotes final : public LoneCoordination {
 public:
  using LoneCoordination::LoneCoordination;
  void SetProgress(const TrainProgress& progress) override {
    LoneCoordination::SetProgress(progress);
    if (on_step) on_step(progress.step);
  }

  std::function<void(uint64_t step)> on_step;
};

TEST_CASE("a worker that is asked to leave brings what was held back, or says that it is lost",
          "[train]") {
  const bool flush = GENERATE(true, false);
  const bool holds_back = GENERATE(true, false);
  // Before the third exchange, in it, or never.
  enum class Asked { kBefore, kWithin, kNever };
  const Asked asked = GENERATE(Asked::kBefore, Asked::kWithin, Asked::kNever);
  if (flush && !holds_back) return;  // The job reader refuses it.
  CAPTURE(flush, holds_back, static_cast<int>(asked));
  LoneWorker worker({"method={local_sgd: {local_steps: 2}}",
                     holds_back ? "codec={push: int8, error_feedback: true}" : "codec={push: int8}",
                     flush ? "codec.flush=true" : "codec.flush=false"});
  FlushNotes notes(&worker.client);
  StepNotes coordination(0, 1, 112);
  TrainLoop loop(worker.options(), &worker.data, worker.replica.get(), &notes, &coordination);
  coordination.on_step = [&](uint64_t step) {
    if (asked == Asked::kBefore && step == 5) loop.Stop();
  };
  notes.on_push = [&] {
    if (asked == Asked::kWithin && notes.pushed == Exchange(3)) loop.Stop();
  };
  REQUIRE(loop.Run().ok());
  // Where it has nothing to bring it leaves where it is; an exchange that is under way does not bring it any more.
  const uint64_t last = (asked == Asked::kWithin ? 3 : 2) + (flush ? 1 : 0);
  CHECK(notes.pushed == Exchange(asked == Asked::kNever ? 25 : last));
  CHECK(notes.flushed == (flush ? std::vector<Exchange>{notes.pushed} : std::vector<Exchange>()));
  CHECK(loop.left_residual() == (asked != Asked::kNever && holds_back && !flush));
}

// Minibatches from one on come to nothing, as where another worker is gone.
class DroppingLearner final : public ForwardingLearner {
 public:
  DroppingLearner(std::unique_ptr<Learner> inner, uint64_t first_dropped)
      : ForwardingLearner(std::move(inner)), first_dropped_(first_dropped) {}
  absl::StatusOr<Losses> Train(const Dataset& data, absl::Span<const uint32_t> rows,
                               const TrainPoint& point) override {
    step_ = point.step;
    return ForwardingLearner::Train(data, rows, point);
  }
  uint64_t summed() const override { return step_ < first_dropped_ ? 1 : 0; }

 private:
  const uint64_t first_dropped_;
  uint64_t step_ = 0;
};

// Pushes of nothing go to servers that know of no halves as if they were whole.
class ExampleNotes final : public ForwardingClient {
 public:
  using ForwardingClient::ForwardingClient;
  absl::StatusOr<ExchangeResult> PushPull(const OutgoingPush& push, const KeySet& update_keys,
                                          const ConstParameterArrays& update,
                                          const KeySet& value_keys,
                                          const ParameterArrays& values) override {
    examples.push_back(push.examples);
    flushed = push.flush;
    OutgoingPush whole = push;
    whole.summed = 1;
    return ForwardingClient::PushPull(whole, update_keys, update, value_keys, values);
  }

  std::vector<uint64_t> examples;
  bool flushed = false;
};

TEST_CASE(
    "a minibatch that comes to nothing is counted by nobody, and brings nothing that was held back",
    "[train]") {
  const bool stops = GENERATE(false, true);
  LoneWorker worker({"codec={push: int8, error_feedback: true, flush: true}", "train.steps=6"});
  DroppingLearner learner(std::move(worker.replica), /*first_dropped=*/3);
  ExampleNotes notes(&worker.client);
  StepNotes coordination(0, 1, 112);
  TrainLoop loop(worker.options(), &worker.data, &learner, &notes, &coordination);
  coordination.on_step = [&](uint64_t step) {
    if (stops && step == 4) loop.Stop();
  };
  REQUIRE(loop.Run().ok());
  const auto batch = static_cast<uint64_t>(worker.job.train().batch_size());
  // One that is to leave does not wait for a minibatch that could bring it.
  std::vector<uint64_t> wanted(3, batch);
  wanted.resize(stops ? 4 : 6, 0);
  CHECK(notes.examples == wanted);
  CHECK(loop.examples() == 3 * batch);
  CHECK_FALSE(notes.flushed);
  CHECK(loop.left_residual());
}

class WarmUpNotes final : public LoneCoordination {
 public:
  using LoneCoordination::LoneCoordination;
  absl::Status EndWarmUp() override {
    ends.push_back(last_progress.step);
    return absl::OkStatus();
  }

  std::vector<uint64_t> ends;
};

TEST_CASE(
    "a worker that trains alone at first asks once, at the next exchange boundary, whether it may "
    "go on",
    "[train]") {
  LoneWorker worker({"method={local_sgd: {local_steps: 5}}"});
  worker.recipe.warmup_steps = 12;
  const uint64_t first_step = GENERATE(0, 10, 15);
  WarmUpNotes coordination(0, 1, 112);
  TrainLoop::Options options = worker.options();
  options.first_step = first_step;
  TrainLoop loop(std::move(options), &worker.data, worker.replica.get(), &worker.client,
                 &coordination);
  REQUIRE(loop.Run().ok());
  CHECK(coordination.ends ==
        (first_step < 12 ? std::vector<uint64_t>{15} : std::vector<uint64_t>()));
}

}  // namespace
}  // namespace tessera
