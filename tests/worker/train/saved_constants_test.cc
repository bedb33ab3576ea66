// When a worker writes its file of a checkpoint, and what batch norms' constants it has to write.
#include <catch2/catch.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/worker/train/forwarding_client.h"
#include "tests/worker/train/lone_coordination.h"
#include "tests/worker/train/lone_worker.h"
#include "worker/train/train_loop.h"

namespace tessera {
namespace {

// Keeps what it is given, with where the evaluations were by then.
class WrittenFiles final : public WorkerStore {
 public:
  struct File {
    uint64_t number = 0;
    WorkerCursor cursor;
    size_t evaluations = 0;
  };
  explicit WrittenFiles(const LoneCoordination* coordination) : coordination_(*coordination) {}
  void Save(uint64_t number, uint64_t, const WorkerCursor& cursor, const PrivateState&) override {
    files.push_back({number, cursor, coordination_.scores.size()});
  }
  void SaveLast(const WorkerCursor& cursor, const PrivateState&) override {
    files.push_back({0, cursor, coordination_.scores.size()});
  }
  absl::StatusOr<std::optional<WorkerCursor>> Load(const PrivateState&) override {
    return std::optional<WorkerCursor>();
  }
  std::vector<File> files;

 private:
  const LoneCoordination& coordination_;
};

// A server that has a checkpoint of the values that each of these exchanges brings.
class SavingClient final : public ForwardingClient {
 public:
  SavingClient(ParameterClient* client, std::vector<uint64_t> exchanges)
      : ForwardingClient(client), exchanges_(std::move(exchanges)) {}
  absl::StatusOr<ExchangeResult> PushPull(const OutgoingPush& push, const KeySet& update_keys,
                                          const ConstParameterArrays& update,
                                          const KeySet& value_keys,
                                          const ParameterArrays& values) override {
    auto result = ForwardingClient::PushPull(push, update_keys, update, value_keys, values);
    for (size_t i = 0; i < exchanges_.size() && result.ok(); ++i) {
      if (push.exchange == Exchange(exchanges_[i])) result->checkpoint_number = i + 1;
    }
    return result;
  }

 private:
  const std::vector<uint64_t> exchanges_;
};

TEST_CASE("a checkpoint at an evaluation has the batch norms' constants of its very model",
          "[train]") {
  const bool lockstep = GENERATE(true, false);
  const bool has_norm = GENERATE(true, false);
  LoneWorker worker(
      {lockstep ? "method={data_parallel: {}}" : "method={async_sgd: {}}",
       absl::StrCat("model={input: [64], layers: [linear: {units: 24}, ",
                    has_norm ? "batch_norm: {}, " : "", "relu: {}, linear: {units: 10}]}"),
       "train={batch_size: 12, epochs: 2, evaluate_every: 1, optimizer: {sgd: {learning_rate: "
       "0.05}}}"});
  LoneCoordination coordination(0, 1, 112);
  WrittenFiles store(&coordination);
  // In mid-epoch, at the end of the first and at the end of the job.
  SavingClient client(&worker.client, {50, 112, 224});
  TrainLoop::Options options = worker.options();
  options.store = &store;
  TrainLoop loop(options, &worker.data, worker.replica.get(), &client, &coordination);
  REQUIRE(loop.Run().ok());
  REQUIRE(coordination.scores.size() == 2);
  REQUIRE(store.files.size() == 4);
  const bool waits = lockstep && has_norm;
  const std::vector<uint64_t> steps = {50, 112, 224, 224};
  const std::vector<size_t> evaluations = {0, waits ? 1u : 0u, waits ? 2u : 1u, 2};
  const std::vector<bool> has_constants = {false, waits, waits, has_norm};
  for (size_t i = 0; i < 4; ++i) {
    const WrittenFiles::File& file = store.files[i];
    CHECK(file.number == (i < 3 ? i + 1 : 0));
    CHECK(file.cursor.progress.step == steps[i]);
    CHECK(file.cursor.evaluation_due == (i > 0));
    CHECK(file.evaluations == evaluations[i]);
    CHECK(file.cursor.norm_constants.size() == (has_constants[i] ? 48 : 0));
  }
  // Of other values.
  if (waits) {
    CHECK(store.files[1].cursor.norm_constants != store.files[2].cursor.norm_constants);
    CHECK(store.files[2].cursor.norm_constants == store.files[3].cursor.norm_constants);
  }
}

}  // namespace
}  // namespace tessera
