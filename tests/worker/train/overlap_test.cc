// Exchanges that go on beside training, against CoCoD-SGD in so many words (common/method/local_sgd.cc).
#include <algorithm>
#include <catch2/catch.hpp>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/method/train_rows.h"
#include "tests/worker/train/subnet_workers.h"
#include "worker/data/order.h"
#include "worker/train/worker_state.h"

namespace tessera {
namespace {

constexpr char kMomentum[] = "train.optimizer={sgd: {learning_rate: 0.02, momentum: 0.9}}";
constexpr char kAdamW[] = "train.optimizer={adamw: {learning_rate: 0.002, weight_decay: 0.01}}";
constexpr int64_t kLocalSteps = 7;

std::string Method(const std::string& name, bool overlaps) {
  return absl::StrCat("method={", name, ": {local_steps: ", kLocalSteps,
                      overlaps ? ", overlap: true" : "", "}}");
}

using Arrays = std::vector<std::vector<float>>;

Arrays CopyOf(const ConstParameterArrays& arrays) {
  Arrays copy;
  for (const auto& array : arrays) copy.emplace_back(array.begin(), array.end());
  return copy;
}

template <typename Views>
Views ViewsOf(Arrays& arrays) {
  Views views;
  for (std::vector<float>& array : arrays) views.emplace_back(array.data(), array.size());
  return views;
}

// One worker, whose replica knows nothing of overlaps: x <- w + (x - base), where w is what the exchange
// before brought, and base what x was when that began. Each exchange is made at once and used late. On a
// thread of its own.
std::vector<double> TrainInWords(const v1::Job& job, const Datasets& data,
                                 InProcessServers* servers, int rank, int workers) {
  const Recipe recipe = *RecipeFor(job);
  const std::unique_ptr<Backend> backend = OnCpu();
  const auto learner = *MakeReplica(job, recipe, Rank(rank), Exchange(1), backend.get(), {});
  InProcessClient client(servers, MemberId(rank + 1), recipe.payload);
  const int64_t batch = job.train().batch_size();
  const int64_t in_epoch = *EpochSteps(data.train.rows(), workers, batch);
  const int64_t steps =
      job.train().epochs() > 0 ? job.train().epochs() * in_epoch : job.train().steps();
  EpochOrder order({Partition::kGlobal, job.seed(), data.train.rows(), batch, nullptr});
  TESSERA_CHECK(client.Pull(Exchange(0), learner->value_keys(), learner->values()).ok());
  TESSERA_CHECK(learner->AdoptValues().ok());
  std::vector<double> losses;
  std::optional<Arrays> brought;  // by the exchange that is still to be taken up
  Exchange exchange(0);
  bool due = false;
  for (int64_t step = 0; step < steps;) {
    const auto rests = [&] { return due || step == steps; };
    for (int64_t i = 0; i < kLocalSteps && step < steps; ++i, ++step) {
      if (step % in_epoch == 0) {
        EpochPlace place;
        place.epoch = step / in_epoch;
        place.rank = Rank(rank);
        place.part = rank;
        place.parts = workers;
        place.rows_total = 0;
        TESSERA_CHECK(order.Begin(place).ok());
      }
      const auto known = learner->Train(data.train, order.Rows(step % in_epoch),
                                        {static_cast<uint64_t>(step), 1.0f, false, {}});
      TESSERA_CHECK(known.ok() && known->size() == 1);
      losses.push_back(known->front());
      due = due || (job.train().evaluate_every() > 0 && (step + 1) % in_epoch == 0);
    }
    TESSERA_CHECK(learner->FormUpdate().ok());
    Arrays delta = CopyOf(learner->update());
    if (brought.has_value()) {
      for (size_t p = 0; p < delta.size(); ++p) {
        for (size_t i = 0; i < delta[p].size(); ++i) {
          learner->values()[p][i] = (*brought)[p][i] + delta[p][i];
        }
      }
    }
    Arrays next = delta;
    exchange = exchange.Next();
    OutgoingPush push{exchange, static_cast<uint64_t>(kLocalSteps * batch), IdleNotice()};
    push.kind = recipe.payload;
    TESSERA_CHECK(client
                      .PushPull(push, learner->update_keys(), ViewsOf<ConstParameterArrays>(delta),
                                learner->value_keys(), ViewsOf<ParameterArrays>(next))
                      .ok());
    brought = next;
    if (rests()) {
      for (size_t p = 0; p < next.size(); ++p) {
        std::copy(next[p].begin(), next[p].end(), learner->values()[p].begin());
      }
      brought.reset();
      due = false;
    }
    TESSERA_CHECK(learner->AdoptValues().ok());
  }
  return losses;
}

struct Trained {
  std::vector<std::vector<double>> losses;
  std::vector<float> parameters;
};

Trained InWords(const v1::Job& job, const Datasets& data, int servers, int workers) {
  InProcessServers cluster(job, *RecipeFor(job), servers, workers);
  Trained trained;
  trained.losses.resize(workers);
  std::vector<std::thread> threads;
  for (int k = 0; k < workers; ++k) {
    threads.emplace_back(
        [&, k] { trained.losses[k] = TrainInWords(job, data, &cluster, k, workers); });
  }
  for (std::thread& thread : threads) thread.join();
  trained.parameters = cluster.Parameters();
  return trained;
}

Trained ByLoop(const v1::Job& job, const Datasets& data, int servers, int workers) {
  InProcessServers cluster(job, *RecipeFor(job), servers, workers);
  Trained trained;
  for (const auto& worker : Train(job, &data, &cluster, workers)) {
    trained.losses.push_back(worker->learner->losses());
  }
  trained.parameters = cluster.Parameters();
  return trained;
}

// A coordinator that says so late that the job is drained, and when somebody has come there, no more.
class LateDrain final : public LoneCoordination {
 public:
  LateDrain(int64_t steps, uint64_t told_at, Exchange last)
      : LoneCoordination(0, 1, steps), told_at_(told_at), last_(last) {}
  void SetProgress(const TrainProgress& progress) override {
    LoneCoordination::SetProgress(progress);
    if (progress.step >= told_at_ && arrivals.empty()) drain = last_;
  }
  absl::StatusOr<EvaluationPlace> Arrive(const Arrival& arrival) override {
    drain = Exchange(0);
    return LoneCoordination::Arrive(arrival);
  }

 private:
  const uint64_t told_at_;
  const Exchange last_;
};

// Says of one exchange that a checkpoint has it.
class SavingClient final : public ForwardingClient {
 public:
  SavingClient(ParameterClient* client, Exchange saved) : ForwardingClient(client), saved_(saved) {}
  absl::StatusOr<ExchangeResult> PushPull(const OutgoingPush& push, const KeySet& update_keys,
                                          const ConstParameterArrays& update,
                                          const KeySet& value_keys,
                                          const ParameterArrays& values) override {
    absl::StatusOr<ExchangeResult> result =
        ForwardingClient::PushPull(push, update_keys, update, value_keys, values);
    if (result.ok() && push.exchange == saved_) result->checkpoint_number = 1;
    return result;
  }

 private:
  const Exchange saved_;
};

class OneState final : public WorkerStore {
 public:
  void Save(uint64_t, uint64_t, const WorkerCursor& cursor, const PrivateState& state) override {
    this->cursor = cursor;
    arrays.clear();
    for (const PrivateState::Array& array : state.arrays) {
      arrays.emplace_back(array.values.begin(), array.values.end());
    }
    local_steps = *state.local_steps;
  }
  void SaveLast(const WorkerCursor& last, const PrivateState& state) override {
    if (!is_last) return;
    Save(0, 0, last, state);
  }
  absl::StatusOr<std::optional<WorkerCursor>> Load(const PrivateState& state) override {
    TESSERA_CHECK(state.arrays.size() == arrays.size());
    for (size_t i = 0; i < arrays.size(); ++i) {
      std::copy(arrays[i].begin(), arrays[i].end(), state.arrays[i].values.begin());
    }
    *state.local_steps = local_steps;
    return std::optional<WorkerCursor>(cursor);
  }

  bool is_last = false;  // what the job ends with is kept, else what a pull asks for
  std::optional<WorkerCursor> cursor;
  Arrays arrays;
  uint64_t local_steps = 0;
};

// A lone worker of a job of its own, which may go on where another one ended.
struct Lone {
  Lone(const v1::Job& job, const Datasets& data, InProcessServers* servers, uint64_t told_at,
       Exchange last, OneState* store, bool resumes = false)
      : backend(OnCpu()),
        client(servers, MemberId(1), PayloadKind::kDelta),
        saving(&client, last),
        coordination(*EpochSteps(data.train.rows(), 1, job.train().batch_size()), told_at, last) {
    TrainLoop::Options options;
    options.job = job;
    options.recipe = *RecipeFor(job);
    options.rank = Rank(0);
    options.store = store;
    options.resumes = resumes;
    if (resumes) {
      options.first_exchange = last.Next();
      options.first_step = last.value() * kLocalSteps;
    }
    learner = *MakeReplica(job, options.recipe, Rank(0), options.first_exchange, backend.get(), {});
    loop = std::make_unique<TrainLoop>(options, &data, learner.get(), &saving, &coordination);
  }
  void Run() {
    const absl::Status status = loop->Run();
    INFO(status);
    REQUIRE(status.ok());
  }

  std::unique_ptr<Backend> backend;
  InProcessClient client;
  SavingClient saving;
  LateDrain coordination;
  std::unique_ptr<Learner> learner;
  std::unique_ptr<TrainLoop> loop;
};

constexpr uint64_t kNever = ~uint64_t{0};

}  // namespace

TEST_CASE("an overlapped job is CoCoD-SGD, bit for bit", "[train][overlap]") {
  const int workers = GENERATE(1, 3);
  const std::string method = GENERATE("local_sgd", "diloco");
  const std::string optimizer = GENERATE(kMomentum, kAdamW);
  // To a number of steps, and with evaluations in between, at which all wait.
  const auto length = GENERATE(
      std::vector<std::string>{"train.steps=47"},
      std::vector<std::string>{"train.steps=0", "train.epochs=2", "train.evaluate_every=1"});
  CAPTURE(workers, method, optimizer, length.size());
  std::vector<std::string> words = {Method(method, false), optimizer, kTwoHidden};
  words.insert(words.end(), length.begin(), length.end());
  std::vector<std::string> overlapped = words;
  overlapped[0] = Method(method, true);
  const v1::Job job = LocalJob(overlapped, 2, workers);
  const Datasets data = DataOf(job);
  const Trained want = InWords(LocalJob(words, 2, workers), data, 2, workers);
  const Trained got = ByLoop(job, data, 2, workers);
  CHECK((got.losses == want.losses));
  CHECK((got.parameters == want.parameters));
  // And is something else than waiting for each exchange.
  CHECK((ByLoop(LocalJob(words, 2, workers), data, 2, workers).parameters != got.parameters));
}

TEST_CASE("where every exchange is waited for, an overlapped job is any other",
          "[train][overlap]") {
  const auto length =
      GENERATE(std::vector<std::string>{"train.steps=6"},
               // An evaluation is due at each exchange.
               std::vector<std::string>{"train.steps=0", "train.epochs=4", "train.evaluate_every=1",
                                        "train.batch_size=600"});
  std::vector<std::string> keys = {Method("local_sgd", false), kMomentum};
  keys.insert(keys.end(), length.begin(), length.end());
  const v1::Job waiting = LocalJob(keys, 2, 1);
  keys[0] = Method("local_sgd", true);
  const v1::Job overlapped = LocalJob(keys, 2, 1);
  const Datasets data = DataOf(waiting);
  const Trained want = ByLoop(waiting, data, 2, 1);
  const Trained got = ByLoop(overlapped, data, 2, 1);
  CHECK((got.losses == want.losses));
  CHECK((got.parameters == want.parameters));
}

TEST_CASE("a job that is drained ends with the exchange it is told, whenever it hears of it",
          "[train][overlap]") {
  const v1::Job job = LocalJob({Method("local_sgd", true), kMomentum, "train.steps=100"}, 2, 1);
  const Datasets data = DataOf(job);
  const Exchange last(3);
  std::vector<std::vector<float>> ends;
  // At the start, beside the last exchange, and when steps beyond it have been trained.
  for (const uint64_t told_at : {uint64_t{0}, uint64_t{16}, uint64_t{24}}) {
    CAPTURE(told_at);
    InProcessServers cluster(job, *RecipeFor(job), 2, 1);
    Lone lone(job, data, &cluster, told_at, last, nullptr);
    lone.coordination.stop_at_correct = 0;
    lone.Run();
    CHECK(lone.loop->steps() == 3 * kLocalSteps);
    CHECK(lone.loop->examples() == 3 * kLocalSteps * 12);
    REQUIRE(lone.coordination.arrivals.size() == 1);
    const TrainProgress& progress = lone.coordination.arrivals[0].progress;
    CHECK(progress.step == 3 * kLocalSteps);
    CHECK(progress.exchange == 3);
    CHECK(lone.coordination.arrivals[0].loss_count == 3 * kLocalSteps);
    ends.push_back(cluster.Parameters());
  }
  CHECK((ends[1] == ends[0]));
  CHECK((ends[2] == ends[0]));
}

TEST_CASE("a checkpoint has what a worker was when it had trained what the checkpoint has",
          "[train][overlap]") {
  const std::string optimizer = GENERATE(kMomentum, kAdamW);
  // The one in mid-run, and the one that a drained job ends with.
  const bool is_last = GENERATE(false, true);
  CAPTURE(optimizer, is_last);
  const v1::Job job = LocalJob({Method("local_sgd", true), optimizer, "train.steps=47",
                                "checkpoint.directory=unused", "checkpoint.every_steps=7"},
                               2, 1);
  const Datasets data = DataOf(job);
  const Exchange last(3);
  // A job that rests there, and goes on.
  InProcessServers cluster(job, *RecipeFor(job), 2, 1);
  Lone whole(job, data, &cluster, 0, last, nullptr);
  whole.Run();
  REQUIRE(whole.loop->steps() == 47);
  // One that ends there, with more behind it than went into the exchange.
  InProcessServers other(job, *RecipeFor(job), 2, 1);
  OneState state;
  state.is_last = is_last;
  Lone first(job, data, &other, 24, last, &state);
  first.coordination.stop_at_correct = 0;
  first.Run();
  REQUIRE(state.cursor.has_value());
  CHECK(state.cursor->progress.step == 3 * kLocalSteps);
  CHECK(state.cursor->progress.exchange == 3);
  CHECK(state.local_steps == 3 * kLocalSteps);
  Lone second(job, data, &other, kNever, last, &state, /*resumes=*/true);
  second.Run();
  CHECK(second.loop->steps() == 47);
  // Its own: those before are the coordinator's to count.
  CHECK(second.loop->examples() == (47 - 3 * kLocalSteps) * 12);
  CHECK((other.Parameters() == cluster.Parameters()));
}

TEST_CASE("a worker that fails, or is stopped, leaves no exchange behind", "[train][overlap]") {
  struct Counting final : public ForwardingClient {
    using ForwardingClient::ForwardingClient;
    absl::Status BeginPushPull(const OutgoingPush& push, const KeySet& update_keys,
                               const ConstParameterArrays& update, const KeySet& value_keys,
                               const ParameterArrays& values) override {
      ++open;
      return ForwardingClient::BeginPushPull(push, update_keys, update, value_keys, values);
    }
    absl::StatusOr<ExchangeResult> EndPushPull() override {
      --open;
      return ForwardingClient::EndPushPull();
    }
    void DropPushPull() override {
      --open;
      ++dropped;
    }
    int open = 0;
    int dropped = 0;
  };
  struct Breaking final : public LoneCoordination {
    using LoneCoordination::LoneCoordination;
    absl::StatusOr<EpochCut> BeginEpoch(uint64_t epoch, uint64_t step) override {
      if (epoch == 1 && breaks) return absl::UnavailableError("gone");
      return LoneCoordination::BeginEpoch(epoch, step);
    }
    void SetProgress(const TrainProgress& progress) override {
      if (progress.step == 10 && loop != nullptr) loop->Stop();
    }
    bool breaks = false;
    TrainLoop* loop = nullptr;
  };
  const bool fails = GENERATE(true, false);
  const v1::Job job =
      LocalJob({Method("local_sgd", true), "train.steps=100", "train.batch_size=100"}, 2, 1);
  const Datasets data = DataOf(job);
  const Recipe recipe = *RecipeFor(job);
  InProcessServers cluster(job, recipe, 2, 1);
  const std::unique_ptr<Backend> backend = OnCpu();
  InProcessClient client(&cluster, MemberId(1), recipe.payload);
  Counting counting(&client);
  Breaking coordination(0, 1, *EpochSteps(data.train.rows(), 1, job.train().batch_size()));
  coordination.breaks = fails;
  const auto learner = *MakeReplica(job, recipe, Rank(0), Exchange(1), backend.get(), {});
  TrainLoop::Options options;
  options.job = job;
  options.recipe = recipe;
  options.rank = Rank(0);
  TrainLoop loop(options, &data, learner.get(), &counting, &coordination);
  if (!fails) coordination.loop = &loop;
  CHECK(loop.Run().ok() == !fails);
  CHECK(counting.open == 0);
  CHECK(counting.dropped == (fails ? 1 : 0));
}

}  // namespace tessera
