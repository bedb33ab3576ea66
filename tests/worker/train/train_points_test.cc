// What the train loop says to the learner and to the coordinator: rates, losses, rows, and where its time went.
#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <vector>

#include "tests/worker/train/subnet_workers.h"
#include "worker/data/order.h"

namespace tessera {
namespace {

TEST_CASE(
    "a rate goes by all examples of the job, with those that the others have done since the last "
    "values",
    "[train]") {
  const std::string overlap = GENERATE("", ", overlap: true");
  const int workers = GENERATE(1, 2);
  CAPTURE(overlap, workers);
  const v1::Job job = LocalJob({"method={local_sgd: {local_steps: 3" + overlap + "}}",
                                "train.steps=12", "train.schedule={warmup: 400}"},
                               2, workers);
  const Datasets data = DataOf(job);
  InProcessServers cluster(job, *RecipeFor(job), 2, workers);
  for (const auto& worker : Train(job, &data, &cluster, workers)) {
    const std::vector<float>& rates = worker->learner->rates();
    REQUIRE(rates.size() == 12);
    for (size_t step = 0; step < rates.size(); ++step) {
      const double examples = 12.0 * workers * static_cast<double>(step + 1);
      CHECK(rates[step] == static_cast<float>(std::min(1.0, examples / 400)));
    }
  }
}

TEST_CASE("an entry of the history has the mean loss since the one before", "[train]") {
  const v1::Job job = LocalJob(
      {"train.steps=0", "train.epochs=3", "train.evaluate_every=1", "train.batch_size=100"}, 1, 1);
  const Datasets data = DataOf(job);
  InProcessServers cluster(job, *RecipeFor(job), 1, 1);
  const auto ran = Train(job, &data, &cluster, 1);
  const std::vector<double>& losses = ran[0]->learner->losses();
  const std::vector<Coordination::Arrival>& arrivals = ran[0]->coordination.arrivals;
  REQUIRE(arrivals.size() == 3);
  auto next = losses.begin();
  for (const Coordination::Arrival& arrival : arrivals) {
    REQUIRE(losses.end() - next >= static_cast<int64_t>(arrival.loss_count));
    const auto end = next + static_cast<int64_t>(arrival.loss_count);
    CHECK(arrival.loss_sum == Approx(std::accumulate(next, end, 0.0)).epsilon(1e-12));
    next = end;
  }
  CHECK(next == losses.end());
}

TEST_CASE("a worker that has a part of the rows calibrates with its own", "[train]") {
  const std::string partition = GENERATE("shard", "global");
  const v1::Job job = LocalJob({kTwoHidden, "data.partition=" + partition, "train.steps=7"}, 1, 2);
  const Datasets data = DataOf(job);
  InProcessServers cluster(job, *RecipeFor(job), 1, 2);
  const auto ran = Train(job, &data, &cluster, 2);
  for (int rank = 0; rank < 2; ++rank) {
    const bool is_own = partition == "shard";
    CHECK(ran[rank]->learner->calibrated() ==
          CalibrationRows(job.seed(), data.train.rows(), is_own ? rank : 0, is_own ? 2 : 1));
  }
}

TEST_CASE("no rows are chosen for a model without batch norm", "[train]") {
  const v1::Job job = LocalJob({"model.layers=[linear: {units: 10}]", "train.steps=7"}, 1, 1);
  const Datasets data = DataOf(job);
  InProcessServers cluster(job, *RecipeFor(job), 1, 1);
  const auto ran = Train(job, &data, &cluster, 1);
  CHECK(ran[0]->learner->calibrations() == 0);
  CHECK(ran[0]->coordination.arrivals.size() == 1);
}

// Says of each exchange that is waited for in its second half where the time went.
class SlowEnds final : public ForwardingClient {
 public:
  using ForwardingClient::ForwardingClient;
  absl::StatusOr<ExchangeResult> EndPushPull() override {
    absl::StatusOr<ExchangeResult> result = ForwardingClient::EndPushPull();
    if (!result.ok()) return result;
    ++ended;
    result->push_seconds = 0.25;
    result->wait_seconds = 0.125;
    return result;
  }
  int ended = 0;
};

TEST_CASE("what was waited for in an overlapped exchange is no time of pulling",
          "[train][overlap]") {
  const v1::Job job =
      LocalJob({"method={local_sgd: {local_steps: 2, overlap: true}}", "train.steps=8"}, 1, 1);
  const Datasets data = DataOf(job);
  InProcessServers cluster(job, *RecipeFor(job), 1, 1);
  Worker worker(job, &data, &cluster, 0, 1);
  SlowEnds client(&worker.client);
  TrainLoop::Options options;
  options.job = job;
  options.recipe = worker.recipe;
  options.rank = Rank(0);
  // Whole seconds.
  int64_t now = 0;
  options.clock = [&now] { return absl::Seconds(++now); };
  TrainLoop loop(options, &data, worker.learner.get(), &client, &worker.coordination);
  REQUIRE(loop.Run().ok());
  REQUIRE(client.ended == 3);  // The last exchange is one that is waited for.
  const PhaseSeconds& seconds = loop.phases().seconds();
  const auto fraction = [&](Phase phase) {
    const double all = seconds[static_cast<size_t>(phase)];
    return all - std::floor(all);
  };
  CHECK(seconds[static_cast<size_t>(Phase::kPush)] == 0.75);
  CHECK(fraction(Phase::kWait) == 0.375);
  CHECK(fraction(Phase::kPull) == 0.875);
}

}  // namespace
}  // namespace tessera
