// When a worker asks for the core of its next exchange.
#include <catch2/catch.hpp>
#include <memory>
#include <utility>

#include "tests/worker/train/forwarding_client.h"
#include "tests/worker/train/lone_coordination.h"
#include "tests/worker/train/lone_worker.h"
#include "worker/train/forwarding_learner.h"
#include "worker/train/train_loop.h"

namespace tessera {
namespace {

// A new core at each exchange.
const CoreShare kShare{0.5, 0.25, 1, 1};

// Exchanges all entries, and the loop asks for cores beside them.
class CoreLearner final : public ForwardingLearner {
 public:
  CoreLearner(std::unique_ptr<Learner> inner, const ModelShape& shape)
      : ForwardingLearner(std::move(inner)), keys_({shape, 1, kShare, 7, Rank(0)}) {}
  ExchangeKeys* exchange_keys() override { return &keys_; }

 private:
  ExchangeKeys keys_;
};

class CoreClient final : public ForwardingClient {
 public:
  CoreClient(ParameterClient* client, int64_t entries)
      : ForwardingClient(client), entries_(entries) {}
  void AskCores(uint64_t number) override {
    number_ = number;
    is_asked = true;
    ++asked;
  }
  absl::StatusOr<Cores> TakeCores() override {
    is_asked = false;
    return Cores{std::make_shared<const Core>(Core{{number_, 1}, EntrySet(entries_)})};
  }

  bool is_asked = false;
  int asked = 0;

 private:
  const int64_t entries_;
  uint64_t number_ = 0;
};

// Evaluations during which nothing is under way.
class Evaluations final : public LoneCoordination {
 public:
  explicit Evaluations(const CoreClient* client) : LoneCoordination(0, 1, 112), client_(*client) {}
  absl::StatusOr<EvaluationPlace> Arrive(const Arrival& arrival) override {
    CHECK_FALSE(client_.is_asked);
    return LoneCoordination::Arrive(arrival);
  }
  absl::StatusOr<std::optional<EvaluationResult>> Score(const EvaluationPlace& place,
                                                        const EvaluationScores& scores) override {
    CHECK_FALSE(client_.is_asked);
    return LoneCoordination::Score(place, scores);
  }

 private:
  const CoreClient& client_;
};

TEST_CASE("no core is asked for while an evaluation stands, and none after the last exchange",
          "[train]") {
  LoneWorker worker(
      {"method={local_sgd: {local_steps: 28}}", "train.epochs=3", "train.evaluate_every=1"});
  CoreLearner learner(std::move(worker.replica), worker.servers.shape());
  CoreClient client(&worker.client, worker.servers.shape().size);
  Evaluations coordination(&client);
  TrainLoop loop(worker.options(), &worker.data, &learner, &client, &coordination);
  REQUIRE(loop.Run().ok());
  CHECK(coordination.scores.size() == 3);
  // Four exchanges an epoch, each with its core.
  CHECK(client.asked == 12);
  CHECK_FALSE(client.is_asked);
}

}  // namespace
}  // namespace tessera
