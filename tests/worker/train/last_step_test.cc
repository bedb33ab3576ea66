// Learners hear which minibatch is the last before an exchange, so that its work may begin with it.
#include <algorithm>
#include <catch2/catch.hpp>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "common/method/train_rows.h"
#include "tests/worker/train/subnet_workers.h"
#include "worker/train/forwarding_learner.h"

namespace tessera {
namespace {

// What another learner is asked for, in order: a minibatch, the last one, an update.
class NotingLearner final : public ForwardingLearner {
 public:
  using ForwardingLearner::ForwardingLearner;
  absl::StatusOr<Losses> Train(const Dataset& data, absl::Span<const uint32_t> rows,
                               const TrainPoint& point) override {
    CHECK(point.continues == (!noted.empty() && noted.back() != 'u'));
    noted += point.last ? 'l' : 'm';
    return ForwardingLearner::Train(data, rows, point);
  }
  absl::Status FormUpdate() override {
    noted += 'u';
    return ForwardingLearner::FormUpdate();
  }

  std::string noted;
};

// Knows each loss a minibatch late, as a device does.
class LateLearner final : public ForwardingLearner {
 public:
  using ForwardingLearner::ForwardingLearner;
  absl::StatusOr<Losses> Train(const Dataset& data, absl::Span<const uint32_t> rows,
                               const TrainPoint& point) override {
    const absl::StatusOr<Losses> trained = ForwardingLearner::Train(data, rows, point);
    REQUIRE(trained.ok());
    all.push_back(trained->front());
    return std::exchange(late_, *trained);
  }
  absl::StatusOr<Losses> EndSteps() override { return std::exchange(late_, {}); }
  absl::Status FormUpdate() override {
    CHECK(late_.empty());
    return ForwardingLearner::FormUpdate();
  }

  std::vector<double> all;

 private:
  Losses late_;
};

// The second epoch is over before it begins, as others have joined.
class ShorterCoordination final : public LoneCoordination {
 public:
  using LoneCoordination::LoneCoordination;
  absl::StatusOr<EpochCut> BeginEpoch(uint64_t epoch, uint64_t step) override {
    absl::StatusOr<EpochCut> cut = LoneCoordination::BeginEpoch(epoch, step);
    if (epoch == 1) cut->first_step = step - cut->steps;
    return cut;
  }
};

// A lone worker of a job, whose learner somebody looks at.
class LoneRun {
 public:
  explicit LoneRun(const std::vector<std::string>& overrides)
      : job_(LocalJob(overrides, 2, 1)),
        data_(DataOf(job_)),
        recipe_(*RecipeFor(job_)),
        cluster_(job_, recipe_, 2, 1),
        backend_(OnCpu()),
        client_(&cluster_, MemberId(1), recipe_.payload) {}

  int64_t epoch_steps() const {
    return *EpochSteps(data_.train.rows(), 1, job_.train().batch_size());
  }
  std::unique_ptr<Learner> MakeLearner() {
    return *MakeReplica(job_, recipe_, Rank(0), Exchange(1), backend_.get(), {});
  }
  // To the job's end.
  void Train(Learner* learner, Coordination* coordination) {
    TrainLoop::Options options;
    options.job = job_;
    options.recipe = recipe_;
    options.rank = Rank(0);
    TrainLoop loop(options, &data_, learner, &client_, coordination);
    const absl::Status status = loop.Run();
    INFO(status);
    REQUIRE(status.ok());
  }

 private:
  const v1::Job job_;
  const Datasets data_;
  const Recipe recipe_;
  InProcessServers cluster_;
  const std::unique_ptr<Backend> backend_;
  InProcessClient client_;
};

std::string Noted(const std::vector<std::string>& overrides) {
  LoneRun run(overrides);
  LoneCoordination coordination(0, 1, run.epoch_steps());
  NotingLearner learner(run.MakeLearner());
  run.Train(&learner, &coordination);
  return learner.noted;
}

}  // namespace

TEST_CASE("the last minibatch before an exchange is known to be that", "[train]") {
  CHECK(Noted({"method={data_parallel: {}}", "train.steps=3"}) == "lululu");
  CHECK(Noted({"method={local_sgd: {local_steps: 3}}", "train.steps=6"}) == "mmlummlu");
  CHECK(Noted({"method={ist: {local_steps: 3}}", "train.steps=6"}) == "mmlummlu");
}

TEST_CASE("an exchange at the job's end is known as well, in the middle of an interval",
          "[train]") {
  CHECK(Noted({"method={local_sgd: {local_steps: 3}}", "train.steps=4"}) == "mmlulu");
  const std::string noted = Noted({"method={local_sgd: {local_steps: 5}}", "train.steps=0",
                                   "train.epochs=2", "train.batch_size=96"});
  CHECK(std::count(noted.begin(), noted.end(), 'u') >= 3);
  for (size_t i = 0; i < noted.size(); ++i) {
    CAPTURE(noted, i);
    CHECK((noted[i] == 'l') == (i + 1 < noted.size() && noted[i + 1] == 'u'));
  }
}

TEST_CASE(
    "losses that are known late are all counted, also where the last step was not known as such",
    "[train]") {
  const std::string method =
      GENERATE("method={data_parallel: {}}", "method={local_sgd: {local_steps: 7}}",
               "method={local_sgd: {local_steps: 1000}}");
  LoneRun run({method, "train.steps=0", "train.epochs=2", "train.batch_size=96"});
  const int64_t steps = run.epoch_steps();
  ShorterCoordination coordination(0, 1, steps);
  LateLearner learner(run.MakeLearner());
  run.Train(&learner, &coordination);
  REQUIRE(learner.all.size() == static_cast<size_t>(steps));
  REQUIRE(!coordination.arrivals.empty());
  uint64_t count = 0;
  double sum = 0;
  for (const auto& arrival : coordination.arrivals) {
    count += arrival.loss_count;
    sum += arrival.loss_sum;
  }
  CHECK(count == learner.all.size());
  CHECK(sum == Approx(std::accumulate(learner.all.begin(), learner.all.end(), 0.0)));
  CHECK(coordination.arrivals.back().progress.train_loss == learner.all.back());
}

}  // namespace tessera
