// Learners hear which minibatch is the last before an exchange, so that its work may begin with it.
#include <algorithm>
#include <catch2/catch.hpp>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/worker/train/subnet_workers.h"

namespace tessera {
namespace {

// What another learner is asked for, in order: a minibatch, the last one, an update.
class NotingLearner final : public Learner {
 public:
  explicit NotingLearner(std::unique_ptr<Learner> inner) : inner_(std::move(inner)) {}
  const ParameterArrays& values() const override { return inner_->values(); }
  const KeySet& value_keys() const override { return inner_->value_keys(); }
  const ConstParameterArrays& update() const override { return inner_->update(); }
  const KeySet& update_keys() const override { return inner_->update_keys(); }
  absl::StatusOr<double> Train(const Dataset& data, absl::Span<const uint32_t> rows,
                               const TrainPoint& point) override {
    noted += point.last ? 'l' : 'm';
    return inner_->Train(data, rows, point);
  }
  absl::Status FormUpdate() override {
    noted += 'u';
    return inner_->FormUpdate();
  }
  absl::Status AdoptValues() override { return inner_->AdoptValues(); }
  absl::Status Recut(const SubnetPlace& place) override { return inner_->Recut(place); }
  absl::Status BeginTail() override { return inner_->BeginTail(); }
  bool pulls_apart() const override { return inner_->pulls_apart(); }
  absl::StatusOr<ExchangeResult> BeginEvaluation(ParameterClient* servers, Exchange after,
                                                 RestWord word) override {
    return inner_->BeginEvaluation(servers, after, word);
  }
  absl::StatusOr<bool> EndEvaluation() override { return inner_->EndEvaluation(); }
  absl::StatusOr<std::vector<float>> Calibrate(const Dataset& data,
                                               absl::Span<const uint32_t> rows) override {
    return inner_->Calibrate(data, rows);
  }
  absl::StatusOr<Scores> Score(const Dataset& data, absl::Span<const uint32_t> rows,
                               absl::Span<const float> constants) override {
    return inner_->Score(data, rows, constants);
  }

  std::string noted;

 private:
  const std::unique_ptr<Learner> inner_;
};

std::string Noted(const std::vector<std::string>& overrides) {
  const v1::Job job = LocalJob(overrides, 2, 1);
  const Datasets data = DataOf(job);
  const Recipe recipe = *RecipeFor(job);
  InProcessServers cluster(job, recipe, 2, 1);
  const std::unique_ptr<Backend> backend = OnCpu();
  InProcessClient client(&cluster, MemberId(1), recipe.payload);
  LoneCoordination coordination(0, 1, *EpochSteps(data.train.rows(), 1, job.train().batch_size()));
  NotingLearner learner(*MakeReplica(job, recipe, Rank(0), Exchange(1), backend.get(), {}));
  TrainLoop::Options options;
  options.job = job;
  options.recipe = recipe;
  options.rank = Rank(0);
  TrainLoop loop(options, &data, &learner, &client, &coordination);
  const absl::Status status = loop.Run();
  INFO(status);
  REQUIRE(status.ok());
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

}  // namespace tessera
