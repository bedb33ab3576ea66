// Learners hear which minibatch is the last before an exchange, so that its work may begin with it.
#include <algorithm>
#include <catch2/catch.hpp>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/worker/train/subnet_workers.h"
#include "worker/train/forwarding_learner.h"

namespace tessera {
namespace {

// What another learner is asked for, in order: a minibatch, the last one, an update.
class NotingLearner final : public ForwardingLearner {
 public:
  using ForwardingLearner::ForwardingLearner;
  absl::StatusOr<double> Train(const Dataset& data, absl::Span<const uint32_t> rows,
                               const TrainPoint& point) override {
    noted += point.last ? 'l' : 'm';
    return ForwardingLearner::Train(data, rows, point);
  }
  absl::Status FormUpdate() override {
    noted += 'u';
    return ForwardingLearner::FormUpdate();
  }

  std::string noted;
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
