#include "worker/replica/replica.h"

#include <algorithm>
#include <cmath>

#include "common/method/recipe.h"
#include "proto/job.pb.h"
#include "tests/worker/model/counting_backend.h"
#include "tests/worker/model/model_fixture.h"
#include "worker/data/dataset.h"

namespace tessera {
namespace {

constexpr int kRows = 64;
constexpr int kBatch = 8;
using Values = std::vector<std::vector<float>>;

v1::Job JobOf(const std::string& model = "3 linear:5 norm relu linear:2 softmax") {
  v1::Job job;
  *job.mutable_model() = ModelOf(model);
  job.mutable_train()->set_batch_size(kBatch);
  job.mutable_train()->set_precision("f32");
  job.mutable_train()->mutable_optimizer()->mutable_sgd()->set_learning_rate(0.1);
  return job;
}

v1::Job WithMomentum(v1::Job job) {
  job.mutable_train()->mutable_optimizer()->mutable_sgd()->set_momentum(0.9);
  return job;
}

v1::Job WithAdam(v1::Job job) {
  v1::Adam* const adam = job.mutable_train()->mutable_optimizer()->mutable_adam();
  adam->set_learning_rate(0.01);
  adam->set_beta1(0.9);
  adam->set_beta2(0.999);
  adam->set_epsilon(1e-12);
  return job;
}

Recipe Gradients() { return Recipe(); }

Recipe Deltas(std::vector<std::string> averaged_states = {}) {
  Recipe recipe;
  recipe.payload = PayloadKind::kDelta;
  recipe.averaged_states = std::move(averaged_states);
  return recipe;
}

Dataset Data() {
  const Rows rows(ModelOf("3 linear:2 softmax"), kRows, 1);
  Table table;
  table.rows = kRows;
  table.features = 3;
  table.values = F32Values(rows.inputs);
  table.labels = Classes(rows.labels);
  return Dataset(std::move(table), Normalization(), ModelEnds{3, 2, false});
}

// A replica that has pulled random values, and zeros for the states that it averages.
struct Worker {
  explicit Worker(const v1::Job& job, const Recipe& recipe)
      : backend(Cpu()), data(Data()), replica(Made(job, recipe, *backend)) {
    const size_t parameters = ShapeOf(job.model())->parameters.size();
    std::mt19937 random(3);
    std::uniform_real_distribution<float> uniform(0.1f, 1);
    for (size_t p = 0; p < replica->values().size(); ++p) {
      for (float& value : replica->values()[p]) value = p < parameters ? uniform(random) : 0;
    }
    REQUIRE(replica->AdoptValues().ok());
  }

  static std::unique_ptr<Replica> Made(const v1::Job& job, const Recipe& recipe, Backend& backend) {
    auto replica = Replica::Create(job, recipe, Rank(0), &backend);
    INFO(replica.status());
    REQUIRE(replica.ok());
    return std::move(*replica);
  }

  // One minibatch, whose rows depend on the step.
  double Train(uint64_t step, float rate = 1) {
    std::vector<uint32_t> rows;
    for (uint32_t i = 0; i < kBatch; ++i) rows.push_back((step * kBatch + i) % kRows);
    const absl::StatusOr<Losses> losses = replica->Train(data, rows, {step, rate});
    INFO(losses.status());
    REQUIRE(losses.ok());
    REQUIRE(losses->size() == 1);
    return losses->front();
  }
  Values Now() const {
    Values copies;
    for (const auto& array : replica->values()) copies.emplace_back(array.begin(), array.end());
    return copies;
  }
  Values Update() {
    REQUIRE(replica->FormUpdate().ok());
    Values copies;
    for (const auto& array : replica->update()) copies.emplace_back(array.begin(), array.end());
    return copies;
  }
  void Pull(const Values& values) {
    REQUIRE(values.size() <= replica->values().size());
    for (size_t p = 0; p < values.size(); ++p) {
      REQUIRE(values[p].size() == replica->values()[p].size());
      std::copy(values[p].begin(), values[p].end(), replica->values()[p].begin());
    }
    REQUIRE(replica->AdoptValues().ok());
  }

  std::unique_ptr<Backend> backend;
  Dataset data;
  std::unique_ptr<Replica> replica;
};

// Each entry of a less that of b.
Values Difference(Values a, const Values& b) {
  for (size_t p = 0; p < a.size(); ++p) {
    for (size_t i = 0; i < a[p].size(); ++i) a[p][i] -= b[p][i];
  }
  return a;
}

double Length(const Values& values) {
  double sum = 0;
  for (const std::vector<float>& array : values) {
    for (const float x : array) sum += double{x} * x;
  }
  return std::sqrt(sum);
}

}  // namespace

TEST_CASE("where gradients are sent the parameters wait for the servers", "[replica]") {
  Worker worker(JobOf(), Gradients());
  const Values before = worker.Now();
  CHECK(worker.Train(0) > 0);
  CHECK(worker.Now() == before);
  CHECK(Length(worker.Update()) > 0);
  CHECK(worker.replica->values().size() == ShapeOf(JobOf().model())->parameters.size());
}

TEST_CASE("a delta is what all local steps since the last pull have changed", "[replica]") {
  Worker worker(WithMomentum(JobOf()), Deltas());
  for (int exchange = 0; exchange < 3; ++exchange) {
    const Values pulled = worker.Now();
    for (int step = 0; step < 4; ++step) worker.Train(4 * exchange + step);
    const Values trained = worker.Now();
    CHECK(worker.Update() == Difference(trained, pulled));
    CHECK(worker.Now() == trained);
    Values from_servers = trained;
    for (std::vector<float>& array : from_servers) array[0] += 1;
    worker.Pull(from_servers);
  }
}

TEST_CASE("averaged states are exchanged behind the parameters, as the servers hold them",
          "[replica][average]") {
  const v1::Job job = WithAdam(JobOf());
  const Recipe recipe = Deltas({"mean", "squares"});
  Worker worker(job, recipe);
  const ModelShape shape = *ExchangedShape(job.model(), recipe);
  REQUIRE(worker.replica->values().size() == shape.parameters.size());
  REQUIRE(worker.replica->update().size() == shape.parameters.size());
  for (size_t p = 0; p < shape.parameters.size(); ++p) {
    CHECK(worker.replica->values()[p].size() == shape.parameters[p].size());
    CHECK(worker.replica->update()[p].size() == shape.parameters[p].size());
  }
  const Values pulled = worker.Now();
  worker.Train(0);
  worker.Train(1);
  const Values trained = worker.Now();
  CHECK(worker.Update() == Difference(trained, pulled));
  // Each parameter's squares lie two blocks behind it: they alone have no negative entry.
  const size_t count = shape.parameters.size() / 3;
  bool any_negative_mean = false;
  for (size_t p = 0; p < count; ++p) {
    for (const float x : trained[count + p]) any_negative_mean = any_negative_mean || x < 0;
    for (const float x : trained[2 * count + p]) CHECK(x >= 0);
  }
  CHECK(any_negative_mean);
}

TEST_CASE("who adopts another's parameters and states goes on as the other does",
          "[replica][average]") {
  const bool adam = GENERATE(true, false);
  const v1::Job job = adam ? WithAdam(JobOf()) : WithMomentum(JobOf());
  const std::vector<std::string> states =
      adam ? std::vector<std::string>{"mean", "squares"} : std::vector<std::string>{"momentum"};
  Worker one(job, Deltas(states)), other(job, Deltas(states));
  for (uint64_t step = 0; step < 5; ++step) one.Train(step);
  other.Pull(one.Now());
  one.Train(5);
  other.Train(5);
  CHECK(one.Now() == other.Now());
}

TEST_CASE("an optimizer's own states stay with it when values are pulled", "[replica]") {
  Worker one(WithMomentum(JobOf()), Deltas()), other(WithMomentum(JobOf()), Deltas());
  for (uint64_t step = 0; step < 5; ++step) one.Train(step);
  other.Pull(one.Now());
  one.Train(5);
  other.Train(5);
  CHECK(one.Now() != other.Now());
}

// Adam's first correction makes of its first step one of the learning rate in every entry; without
// it, the step would be (1 - beta1) / sqrt(1 - beta2) = 3.16 times as long.
TEST_CASE("the optimizer's updates are counted as its states are: by its own steps or the job's",
          "[replica][average]") {
  const uint64_t late = 1000000;
  Worker own(WithAdam(JobOf()), Deltas());
  Worker shared(WithAdam(JobOf()), Deltas({"mean", "squares"}));
  const size_t count = own.replica->values().size();
  for (Worker* const worker : {&own, &shared}) {
    worker->Train(late);
    Values update = worker->Update();
    update.resize(count);
    double largest = 0;
    for (const auto& array : update) {
      for (const float x : array) largest = std::max(largest, double{std::fabs(x)});
    }
    CHECK(largest == Approx(worker == &own ? 0.01 : 0.0316228).epsilon(1e-3));
  }
}

TEST_CASE("at the job's first step both ways of counting agree", "[replica][average]") {
  Worker own(WithAdam(JobOf()), Deltas());
  Worker shared(WithAdam(JobOf()), Deltas({"mean", "squares"}));
  own.Train(0);
  shared.Train(0);
  Values values = shared.Now();
  values.resize(own.Now().size());
  CHECK(own.Now() == values);
}

TEST_CASE("the rate of a point scales the local step, and 0 stops it", "[replica]") {
  Worker whole(JobOf(), Deltas()), half(JobOf(), Deltas()), none(JobOf(), Deltas());
  const Values before = none.Now();
  whole.Train(0);
  half.Train(0, 0.5f);
  none.Train(0, 0);
  CHECK(none.Now() == before);
  CHECK(Length(none.Update()) == 0);
  CHECK(Length(whole.Update()) == Approx(2 * Length(half.Update())).epsilon(1e-4));
}

TEST_CASE("gradients do not depend on the rate", "[replica]") {
  Worker whole(JobOf(), Gradients()), none(JobOf(), Gradients());
  CHECK(whole.Train(0) == none.Train(0, 0));
  CHECK(whole.Update() == none.Update());
}

// Wide rows with few entries, read sparse or dense.
Dataset WideData() {
  Table table;
  table.rows = kRows;
  table.features = 800;
  std::mt19937 random(5);
  SparseValues values;
  Classes labels;
  for (int row = 0; row < kRows; ++row) {
    for (uint32_t j = random() % 90; j < 800; j += 1 + random() % 90) {
      values.feature.push_back(j);
      values.value.push_back(0.1f * static_cast<float>(random() % 20) - 1);
    }
    values.begin.push_back(static_cast<int64_t>(values.value.size()));
    labels.push_back(row % 2);
  }
  table.values = std::move(values);
  table.labels = std::move(labels);
  return Dataset(std::move(table), Normalization(), ModelEnds{800, 2, false});
}

TEST_CASE("a replica that reads rows sparse learns what one that reads them dense does",
          "[replica][sparse]") {
  const bool momentum = GENERATE(true, false);
  const Recipe recipe = GENERATE(Gradients(), Deltas());
  v1::Job job = JobOf("800 linear:50 norm relu linear:2 softmax");
  if (momentum) job = WithMomentum(job);
  const Datasets data = {WideData(), WideData()};
  const InputRows input = InputRowsOf(job.model(), data);
  REQUIRE(input.sparse);
  const auto backend = Cpu();
  const auto sparse = *Replica::Create(job, recipe, Rank(0), backend.get(), input);
  const auto dense = *Replica::Create(job, recipe, Rank(0), backend.get());
  std::mt19937 random(3);
  std::uniform_real_distribution<float> uniform(-0.1f, 0.1f);
  for (size_t p = 0; p < dense->values().size(); ++p) {
    for (float& value : dense->values()[p]) value = uniform(random);
    std::copy(dense->values()[p].begin(), dense->values()[p].end(), sparse->values()[p].begin());
  }
  REQUIRE((sparse->AdoptValues().ok() && dense->AdoptValues().ok()));
  for (uint64_t step = 0; step < 6; ++step) {
    std::vector<uint32_t> rows;
    for (uint32_t i = 0; i < kBatch; ++i) rows.push_back((step * kBatch + i) % kRows);
    const auto a = sparse->Train(data.train, rows, {step, 1});
    const auto b = dense->Train(data.train, rows, {step, 1});
    REQUIRE((a.ok() && b.ok()));
    CHECK(a->front() == Approx(b->front()).epsilon(1e-4));
  }
  REQUIRE((sparse->FormUpdate().ok() && dense->FormUpdate().ok()));
  for (size_t p = 0; p < dense->update().size(); ++p) {
    for (size_t i = 0; i < dense->update()[p].size(); ++i) {
      CHECK(sparse->update()[p][i] == Approx(dense->update()[p][i]).epsilon(1e-3).margin(1e-5));
    }
  }
  const auto a = sparse->Calibrate(data.train, {1, 2, 3}),
             b = dense->Calibrate(data.train, {1, 2, 3});
  REQUIRE((a.ok() && b.ok()));
  const auto scores = sparse->Score(data.test, {4, 5, 6, 7}, *a);
  REQUIRE(scores.ok());
  CHECK(scores->loss_sum ==
        Approx(dense->Score(data.test, {4, 5, 6, 7}, *b)->loss_sum).epsilon(1e-3));
}

TEST_CASE("rows are read sparse where the first layer is linear", "[replica][sparse]") {
  const Datasets data = {WideData(), WideData()};
  CHECK(InputRowsOf(ModelOf("800 linear:2 softmax"), data).sparse);
  CHECK(InputRowsOf(ModelOf("800 linear:2 softmax"), data).entries_max > 1);
  CHECK_FALSE(InputRowsOf(ModelOf("800 norm linear:2 softmax"), data).sparse);
  CHECK_FALSE(InputRowsOf(ModelOf("3 linear:2 softmax"), {Data(), Data()}).sparse);
}

TEST_CASE("nothing as large as dense rows counts where rows are sparse",
          "[replica][sparse][memory]") {
  v1::Job job = JobOf("1000000 linear:2 norm softmax");
  job.mutable_train()->set_precision(GENERATE("f32", "bf16"));
  const int64_t parameters = PlanOf(job.model())->parameter_floats * 4;
  const InputRows input = {true, 100};
  const int64_t sparse = *Replica::MemoryNeeded(job, Gradients(), 2048, input);
  const int64_t dense = *Replica::MemoryNeeded(job, Gradients(), 2048);
  // The rows that evaluation takes at once.
  CHECK(dense - 2 * parameters > int64_t{128} * 1000000 * 4);
  CHECK(sparse - 2 * parameters < int64_t{16} << 20);
}

TEST_CASE("evaluation takes at least 128 rows at once, of large images fewer, in pieces no more",
          "[replica]") {
  v1::Job job;
  job.mutable_train()->set_batch_size(8);
  const auto rows = [&job](const std::string& model) {
    *job.mutable_model() = ModelOf(model);
    return BatchRowsMax(job);
  };
  CHECK(rows("784 linear:3 softmax") == 128);
  CHECK(rows("200000 linear:3 softmax") == 128);
  CHECK(rows("3 32 32 conv:4:3 linear:3 softmax") == 128);
  CHECK(rows("3 96 96 conv:4:3 linear:3 softmax") == 37);
  CHECK(rows("3 224 224 conv:4:3 linear:3 softmax") == 8);
  CHECK(rows("3 2000 2000 conv:4:3 linear:3 softmax") == 8);
  job.mutable_train()->set_batch_size(300);
  CHECK(rows("3 224 224 conv:4:3 linear:3 softmax") == 300);
  job.mutable_train()->set_micro_batch(5);
  CHECK(rows("3 32 32 conv:4:3 linear:3 softmax") == 5);
}

TEST_CASE("a replica holds what MemoryNeeded says, state by state", "[replica][memory]") {
  struct Kind {
    v1::Job job;
    Recipe recipe;
    int arrays;
  };
  const std::string model = "3 linear:50 norm relu linear:2 softmax";
  const std::vector<Kind> kinds = {
      {JobOf(model), Deltas(), 1},
      {WithMomentum(JobOf(model)), Deltas(), 2},
      {WithMomentum(JobOf(model)), Deltas({"momentum"}), 3},
      {WithAdam(JobOf(model)), Deltas(), 3},
      {WithAdam(JobOf(model)), Deltas({"mean", "squares"}), 5},
  };
  const auto cpu = Cpu();
  const auto held = [&](const Kind& kind) {
    CountingBackend backend(*cpu);
    const auto replica = Replica::Create(kind.job, kind.recipe, Rank(0), &backend);
    REQUIRE(replica.ok());
    return backend.counting.held;
  };
  const Kind gradients = {JobOf(model), Gradients(), 0};
  const int64_t base = *Replica::MemoryNeeded(gradients.job, gradients.recipe, 100);
  const int64_t bytes = PlanOf(gradients.job.model())->parameter_floats * 4;
  for (const Kind& kind : kinds) {
    CAPTURE(kind.arrays);
    CHECK(*Replica::MemoryNeeded(kind.job, kind.recipe, 100) - base == kind.arrays * bytes);
    CHECK(held(kind) - held(gradients) == kind.arrays * bytes);
  }
}

TEST_CASE("what a checkpoint copies of a replica is as large as is said", "[replica][memory]") {
  struct Kind {
    v1::Job job;
    Recipe recipe;
    int arrays;
  };
  Recipe cores = Deltas(), overlaps = Deltas();
  cores.core = CoreShare{0.5, 0.2, 5, 1};
  overlaps.overlaps = true;
  std::vector<Kind> kinds = {
      {WithMomentum(JobOf()), Gradients(), 0}, {JobOf(), Deltas(), 0},
      {WithMomentum(JobOf()), Deltas(), 1},    {WithMomentum(JobOf()), Deltas({"momentum"}), 0},
      {WithAdam(JobOf()), Deltas(), 2},        {WithAdam(JobOf()), overlaps, 2},
      {WithMomentum(JobOf()), cores, 2},
  };
  const int64_t bytes = ShapeOf(JobOf().model())->size * 4;
  for (size_t k = 0; k < kinds.size(); ++k) {
    CAPTURE(k);
    Kind& kind = kinds[k];
    kind.job.mutable_cluster()->mutable_servers()->set_count(1);
    kind.job.mutable_checkpoint()->set_directory("/ckpt");
    Worker worker(kind.job, kind.recipe);
    const absl::StatusOr<PrivateState> state = worker.replica->private_state();
    REQUIRE(state.ok());
    int64_t shown = 0;
    for (const PrivateState::Array& array : state->arrays) {
      shown += static_cast<int64_t>(array.values.size() * sizeof(float));
    }
    CHECK(shown == kind.arrays * bytes);
    CHECK(*Replica::PrivateStateBytes(kind.job, kind.recipe) == shown);
  }
}

TEST_CASE("where a minibatch does not fit its pieces do, and the sums say so",
          "[replica][memory][pieces]") {
  const auto cpu = Cpu();
  const Dataset data = Data();
  v1::Job whole = JobOf("3 linear:500 relu linear:2 softmax"), pieces = whole;
  whole.mutable_train()->set_batch_size(kRows);
  pieces.mutable_train()->set_batch_size(kRows);
  pieces.mutable_train()->set_micro_batch(16);
  const auto held = [&](const v1::Job& job) {
    CountingBackend backend(*cpu);
    const auto replica = Replica::Create(job, Deltas(), Rank(0), &backend);
    REQUIRE(replica.ok());
    return backend.counting.held;
  };
  const int64_t saved = held(whole) - held(pieces);
  // Activations, and their gradients, of so many rows: the whole has those of an evaluation's batch.
  CHECK(saved > (128 - 16) * 500 * 4 * 2);
  CHECK(*Replica::MemoryNeeded(whole, Deltas(), 0) - *Replica::MemoryNeeded(pieces, Deltas(), 0) >=
        saved);
  CountingBackend backend(*cpu);
  backend.counting.limit = *Replica::MemoryNeeded(pieces, Deltas(), 0);
  CHECK(Replica::Create(whole, Deltas(), Rank(0), &backend).status().code() ==
        absl::StatusCode::kResourceExhausted);
  const auto replica = Replica::Create(pieces, Deltas(), Rank(0), &backend);
  REQUIRE(replica.ok());
  REQUIRE((*replica)->AdoptValues().ok());
  std::vector<uint32_t> rows(kRows);
  for (uint32_t i = 0; i < kRows; ++i) rows[i] = i;
  CHECK((*replica)->Train(data, rows, {0, 1}).ok());
  CHECK((*replica)->Score(data, rows, {}).ok());
}

TEST_CASE("in pieces a sparse first layer has no gradient of its weight either",
          "[replica][sparse][memory][pieces]") {
  v1::Job job = JobOf("100000 linear:200 relu linear:2 softmax");
  job.mutable_train()->set_batch_size(512);
  const InputRows input = {true, 10};
  const int64_t whole = *Replica::MemoryNeeded(job, Deltas(), 0, input);
  job.mutable_train()->set_micro_batch(16);
  const int64_t pieces = *Replica::MemoryNeeded(job, Deltas(), 0, input);
  // Three arrays of activations and gradients are of 16 rows, and one of all rows comes on top.
  CHECK(whole - pieces > (3 * (512 - 16) - 512) * 200 * 4 - (1 << 20));
  const auto cpu = Cpu();
  CountingBackend backend(*cpu);
  const auto replica = Replica::Create(job, Deltas(), Rank(0), &backend, input);
  REQUIRE(replica.ok());
  CHECK(backend.counting.held <= pieces);
  CHECK(backend.counting.held < (int64_t{2} * 100000 + 10000) * 200 * 4);
}

TEST_CASE("a replica that does not fit is a status", "[replica][memory]") {
  const auto cpu = Cpu();
  CountingBackend backend(*cpu);
  const v1::Job job = WithAdam(JobOf());
  int64_t need = 0;
  {
    const auto replica = Replica::Create(job, Deltas({"mean", "squares"}), Rank(0), &backend);
    REQUIRE(replica.ok());
    need = backend.counting.held;
  }
  for (int64_t limit = 0; limit < need; limit += 512) {
    backend.counting.limit = limit;
    const auto replica = Replica::Create(job, Deltas({"mean", "squares"}), Rank(0), &backend);
    REQUIRE(replica.status().code() == absl::StatusCode::kResourceExhausted);
    REQUIRE(backend.counting.held == 0);
  }
}

}  // namespace tessera
