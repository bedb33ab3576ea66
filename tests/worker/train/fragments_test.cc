// Exchanges of fragments, against Streaming DiLoCo in so many words (common/method/diloco.cc).
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/layout/fragment.h"
#include "common/method/train_rows.h"
#include "tests/worker/train/subnet_workers.h"
#include "worker/data/order.h"
#include "worker/train/worker_state.h"

namespace tessera {
namespace {

constexpr int kServers = 2;
constexpr char kMomentum[] = "train.optimizer={sgd: {learning_rate: 0.02, momentum: 0.9}}";
constexpr char kAdamW[] = "train.optimizer={adamw: {learning_rate: 0.002, weight_decay: 0.01}}";

struct Turns {
  int64_t local_steps = 12;
  int fragments = 3;
  int64_t delay = 0;
  float alpha = 0;

  int64_t interval() const { return local_steps / fragments; }
};

std::string Method(const std::string& name, const Turns& turns) {
  return absl::StrCat("method={", name, ": {local_steps: ", turns.local_steps,
                      ", fragments: ", turns.fragments, ", delay: ", turns.delay,
                      ", alpha: ", turns.alpha, "}}");
}

// A method with this outer rule, whose learner is told of no fragments.
std::string Whole(const std::string& name, const Turns& turns) {
  return absl::StrCat("method={", name, ": {local_steps: ", turns.local_steps, "}}");
}

using Arrays = std::vector<std::vector<float>>;

template <typename Views>
Views ViewsOf(Arrays& arrays) {
  Views views;
  for (std::vector<float>& array : arrays) views.emplace_back(array.data(), array.size());
  return views;
}

// Calls each(parameter, entry) for the entries of a fragment.
template <typename Each>
void ForEach(const KeySet& keys, Each each) {
  for (const ShardSlices& slices : keys.slices) {
    for (const Slice& slice : slices.slices) {
      const int64_t begin = slice.row_begin * slice.columns;
      for (int64_t i = 0; i < slice.size(); ++i) each(slice.parameter, begin + i);
    }
  }
}

// One worker, whose replica knows nothing of fragments: after every interval it pushes what has become of one of them
// since that was exchanged last, and `delay` minibatches later takes up alpha of its own and the rest of what came.
std::vector<double> TrainInWords(const v1::Job& job, const Turns& turns, const Datasets& data,
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
  const ParameterArrays& now = learner->values();
  Arrays base;
  for (const auto& array : now) base.emplace_back(array.begin(), array.end());
  Arrays brought = base;
  std::vector<double> losses;
  std::optional<KeySet> in_flight;
  const auto take_up = [&] {
    ForEach(*in_flight, [&](int p, int64_t i) {
      float& own = now[p][i];
      own =
          turns.alpha == 0 ? brought[p][i] : (1 - turns.alpha) * brought[p][i] + turns.alpha * own;
      base[p][i] = brought[p][i];
    });
    in_flight.reset();
  };
  Exchange exchange(0);
  bool due = false;
  for (int64_t step = 0; step < steps;) {
    for (int64_t i = 0; i < turns.interval() && step < steps;) {
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
      ++i;
      ++step;
      due = due || (job.train().evaluate_every() > 0 && step % in_epoch == 0);
      if (in_flight.has_value() && i == turns.delay) take_up();
    }
    if (in_flight.has_value()) take_up();
    exchange = exchange.Next();
    const KeySet keys =
        KeysOfFragment(servers->shape(), kServers, FragmentOf(exchange, turns.fragments));
    Arrays delta = base;
    ForEach(keys, [&](int p, int64_t i) { delta[p][i] = now[p][i] - base[p][i]; });
    OutgoingPush push{exchange, static_cast<uint64_t>(turns.interval() * batch), IdleNotice()};
    push.kind = recipe.payload;
    TESSERA_CHECK(client
                      .PushPull(push, keys, ViewsOf<ConstParameterArrays>(delta), keys,
                                ViewsOf<ParameterArrays>(brought))
                      .ok());
    in_flight = keys;
    if (turns.delay == 0 || due || step == steps) take_up();
    due = false;
  }
  return losses;
}

struct Trained {
  std::vector<std::vector<double>> losses;
  std::vector<float> parameters;
};

Trained InWords(const v1::Job& whole, const v1::Job& job, const Turns& turns, const Datasets& data,
                int workers) {
  InProcessServers cluster(job, *RecipeFor(job), kServers, workers);
  Trained trained;
  trained.losses.resize(workers);
  std::vector<std::thread> threads;
  for (int k = 0; k < workers; ++k) {
    threads.emplace_back(
        [&, k] { trained.losses[k] = TrainInWords(whole, turns, data, &cluster, k, workers); });
  }
  for (std::thread& thread : threads) thread.join();
  trained.parameters = cluster.Parameters();
  return trained;
}

Trained ByLoop(const v1::Job& job, const Datasets& data, int workers) {
  InProcessServers cluster(job, *RecipeFor(job), kServers, workers);
  Trained trained;
  for (const auto& worker : Train(job, &data, &cluster, workers)) {
    trained.losses.push_back(worker->learner->losses());
  }
  trained.parameters = cluster.Parameters();
  return trained;
}

// Keeps what a checkpoint of one exchange has of a worker, and gives it back.
class OneState final : public WorkerStore {
 public:
  void Save(uint64_t, uint64_t, const WorkerCursor& saved, const PrivateState& state) override {
    cursor = saved;
    arrays.clear();
    names.clear();
    for (const PrivateState::Array& array : state.arrays) {
      arrays.emplace_back(array.values.begin(), array.values.end());
      names.push_back(array.name);
    }
    local_steps = *state.local_steps;
  }
  void SaveLast(const WorkerCursor&, const PrivateState&) override {}
  absl::StatusOr<std::optional<WorkerCursor>> Load(const PrivateState& state) override {
    TESSERA_CHECK(state.arrays.size() == arrays.size());
    for (size_t i = 0; i < arrays.size(); ++i) {
      std::copy(arrays[i].begin(), arrays[i].end(), state.arrays[i].values.begin());
    }
    *state.local_steps = local_steps;
    return std::optional<WorkerCursor>(cursor);
  }

  WorkerCursor cursor;
  Arrays arrays;
  std::vector<std::string> names;
  uint64_t local_steps = 0;
};

// Says of one exchange that a checkpoint has it, and can end there.
class SavingClient final : public ForwardingClient {
 public:
  SavingClient(ParameterClient* client, Exchange saved, bool ends)
      : ForwardingClient(client), saved_(saved), ends_(ends) {}
  absl::StatusOr<ExchangeResult> PushPull(const OutgoingPush& push, const KeySet& update_keys,
                                          const ConstParameterArrays& update,
                                          const KeySet& value_keys,
                                          const ParameterArrays& values) override {
    if (ends_ && push.exchange > saved_) return absl::CancelledError("ends");
    absl::StatusOr<ExchangeResult> result =
        ForwardingClient::PushPull(push, update_keys, update, value_keys, values);
    if (result.ok() && push.exchange == saved_) result->checkpoint_number = 1;
    return result;
  }

 private:
  const Exchange saved_;
  const bool ends_;
};

// A lone worker that may end behind an exchange, or go on there.
absl::Status RunLone(const v1::Job& job, const Turns& turns, const Datasets& data,
                     InProcessServers* servers, Exchange saved, OneState* store, bool resumes) {
  const std::unique_ptr<Backend> backend = OnCpu();
  InProcessClient client(servers, MemberId(1), PayloadKind::kDelta);
  SavingClient saving(&client, saved, /*ends=*/store != nullptr && !resumes);
  LoneCoordination coordination(0, 1, *EpochSteps(data.train.rows(), 1, job.train().batch_size()));
  TrainLoop::Options options;
  options.job = job;
  options.recipe = *RecipeFor(job);
  options.rank = Rank(0);
  options.store = store;
  options.resumes = resumes;
  if (resumes) {
    options.checkpoint_number = 1;
    options.first_exchange = saved.Next();
    options.first_step = saved.value() * turns.interval();
  }
  const auto learner =
      *MakeReplica(job, options.recipe, Rank(0), options.first_exchange, backend.get(), {});
  TrainLoop loop(options, &data, learner.get(), &saving, &coordination);
  return loop.Run();
}

}  // namespace

TEST_CASE("a job of fragments is Streaming DiLoCo, bit for bit", "[train][fragments]") {
  const int workers = GENERATE(1, 3);
  const std::string method = GENERATE("local_sgd", "diloco");
  const std::string optimizer = GENERATE(kMomentum, kAdamW);
  const Turns turns = GENERATE(Turns{12, 3, 0, 0}, Turns{12, 3, 1, 0.5f}, Turns{12, 3, 4, 0},
                               Turns{10, 5, 1, 0.25f}, Turns{4, 4, 1, 0}, Turns{12, 2, 0, 0.5f});
  // To a number of steps, and with evaluations in between, at which all wait.
  const auto length = GENERATE(
      std::vector<std::string>{"train.steps=47"},
      std::vector<std::string>{"train.steps=0", "train.epochs=2", "train.evaluate_every=1"});
  CAPTURE(workers, method, optimizer, turns.fragments, turns.delay, turns.alpha, length.size());
  std::vector<std::string> words = {Whole(method, turns), optimizer, kTwoHidden};
  words.insert(words.end(), length.begin(), length.end());
  std::vector<std::string> fragments = words;
  fragments[0] = Method(method, turns);
  const v1::Job whole = LocalJob(words, kServers, workers);
  const v1::Job job = LocalJob(fragments, kServers, workers);
  const Datasets data = DataOf(job);
  const Trained want = InWords(whole, job, turns, data, workers);
  const Trained got = ByLoop(job, data, workers);
  CHECK((got.losses == want.losses));
  CHECK((got.parameters == want.parameters));
  CHECK((ByLoop(whole, data, workers).parameters != got.parameters));
}

TEST_CASE("a lone worker that takes up all that it has pushed trains as if it were alone",
          "[train][fragments]") {
  const Turns turns = {12, 4, 0, 0};
  const std::vector<std::string> rest = {kMomentum, "train.steps=48"};
  std::vector<std::string> words = {Method("local_sgd", turns)};
  words.insert(words.end(), rest.begin(), rest.end());
  const v1::Job job = LocalJob(words, kServers, 1);
  words[0] = "method={data_parallel: {}}";
  const v1::Job alone = LocalJob(words, kServers, 1);
  const Datasets data = DataOf(job);
  const std::vector<double> want = ByLoop(alone, data, 1).losses[0];
  const std::vector<double> got = ByLoop(job, data, 1).losses[0];
  REQUIRE(want.size() == got.size());
  // base + (w - base) is w to within a rounding.
  for (size_t i = 0; i < want.size(); ++i) CHECK(got[i] == Approx(want[i]).epsilon(1e-4));
}

TEST_CASE("a job of fragments goes on from a checkpoint with the same bits", "[train][fragments]") {
  const std::string optimizer = GENERATE(kMomentum, kAdamW);
  const Exchange saved(GENERATE(4, 5, 6));
  const Turns turns = {12, 3, 0, GENERATE(0.0f, 0.5f)};
  CAPTURE(optimizer, saved.value(), turns.alpha);
  const v1::Job job = LocalJob({Method("diloco", turns), optimizer, "train.steps=47",
                                "checkpoint.directory=unused", "checkpoint.every_steps=4"},
                               kServers, 1);
  const Datasets data = DataOf(job);
  InProcessServers whole(job, *RecipeFor(job), kServers, 1);
  CHECK(RunLone(job, turns, data, &whole, Exchange(1000), nullptr, false).ok());
  InProcessServers parted(job, *RecipeFor(job), kServers, 1);
  OneState store;
  CHECK(absl::IsCancelled(RunLone(job, turns, data, &parted, saved, &store, false)));
  CHECK(std::count_if(store.names.begin(), store.names.end(),
                      [](const std::string& name) { return name.rfind("replica.", 0) == 0; }) == 4);
  CHECK(RunLone(job, turns, data, &parted, saved, &store, true).ok());
  CHECK((parted.Parameters() == whole.Parameters()));
}

TEST_CASE("what comes late is in a checkpoint as if it had come at once", "[train][fragments]") {
  const Turns turns = {12, 3, 2, 0.5f};
  const Exchange saved(5);
  const v1::Job late = LocalJob({Method("local_sgd", turns), kAdamW, "train.steps=47",
                                 "checkpoint.directory=unused", "checkpoint.every_steps=4"},
                                kServers, 1);
  const Datasets data = DataOf(late);
  InProcessServers servers(late, *RecipeFor(late), kServers, 1);
  OneState store;
  CHECK(absl::IsCancelled(RunLone(late, turns, data, &servers, saved, &store, false)));
  CHECK(store.cursor.progress.step == saved.value() * turns.interval());
  CHECK(store.cursor.progress.exchange == saved.value());
  // With one worker and no outer optimizer the servers have what it pushed, so that both shares of the fragment that
  // exchange 5 has moved are what it was when that began.
  const KeySet moved = KeysOfFragment(servers.shape(), kServers, FragmentOf(saved, 3));
  const std::vector<float> all = servers.Parameters();
  const size_t first = store.arrays.size() - servers.shape().parameters.size();
  ForEach(moved, [&](int p, int64_t i) {
    int64_t place = i;
    for (int q = 0; q < p; ++q) place += servers.shape().parameters[q].size();
    if (store.arrays[first + p][i] != Approx(all[place]).epsilon(1e-5).margin(1e-6)) {
      FAIL("parameter " << p << " entry " << i);
    }
  });
}

}  // namespace tessera
