// Minibatches in pieces (train.micro_batch) against minibatches at once, through whole learners, on the
// CPU and on a GPU: a real one, or one that the host plays.
#include "worker/replica/minibatch_steps.h"

#include <algorithm>
#include <cmath>

#include "common/method/recipe.h"
#include "kernels/cuda/backend.h"
#include "proto/job.pb.h"
#include "tests/worker/model/model_fixture.h"
#include "worker/replica/make_replica.h"

namespace tessera {
namespace {

constexpr uint32_t kRows = 64;
constexpr int64_t kBatch = 12;
using Values = std::vector<std::vector<float>>;

std::unique_ptr<Backend> On(const std::string& device) {
  if (device == "cpu") return Cpu();
  auto backend = CreateCudaBackend(0);
  INFO(backend.status());
  REQUIRE(backend.ok());
  return *std::move(backend);
}

v1::Job JobOf(const std::string& model, int64_t micro_batch) {
  v1::Job job;
  *job.mutable_model() = ModelOf(model);
  v1::Train* const train = job.mutable_train();
  train->set_batch_size(kBatch);
  train->set_micro_batch(micro_batch);
  train->set_precision("f32");
  train->mutable_optimizer()->mutable_sgd()->set_learning_rate(0.05);
  job.mutable_cluster()->mutable_servers()->set_count(1);
  job.mutable_cluster()->set_workers(1);
  return job;
}

Recipe RecipeOf(PayloadKind payload) {
  Recipe recipe;
  recipe.payload = payload;
  return recipe;
}

// Rows of which most inputs are 0, with as many classes as the model has outputs.
Dataset DataOf(const v1::Model& model, bool sparse) {
  const Rows rows(model, kRows, 1);
  const ModelShape shape = *ShapeOf(model);
  Table table;
  table.rows = kRows;
  table.features = shape.inputs();
  table.labels = Classes(rows.labels);
  SparseValues values;
  std::vector<float> dense = rows.inputs;
  std::mt19937 random(5);
  for (size_t i = 0; i < dense.size(); ++i) {
    if (random() % (shape.inputs() >= 512 ? 16 : 4) != 0) dense[i] = 0;
    if (dense[i] != 0) {
      values.feature.push_back(static_cast<uint32_t>(i % shape.inputs()));
      values.value.push_back(dense[i]);
    }
    if (static_cast<int64_t>(i) % shape.inputs() == shape.inputs() - 1) {
      values.begin.push_back(static_cast<int64_t>(values.value.size()));
    }
  }
  if (sparse) {
    table.values = std::move(values);
  } else {
    table.values = F32Values(dense);
  }
  return Dataset(std::move(table), Normalization(),
                 ModelEnds{shape.inputs(), shape.outputs(), false});
}

struct Result {
  std::vector<double> losses;
  Values update;
};

// Whether the learner hears that one minibatch follows on another, as the train loop says it.
enum class Tells { kAll, kNothing };

// `steps` steps from random values, with the next rows known as the train loop knows them, and then what
// is exchanged.
Result TrainOn(const std::string& device, const v1::Job& job, const Recipe& recipe,
               uint64_t steps = 9, bool sparse = false, Tells tells = Tells::kAll) {
  const auto backend = On(device);
  const Datasets data = {DataOf(job.model(), sparse), DataOf(job.model(), sparse)};
  const InputRows input = InputRowsOf(job.model(), data);
  REQUIRE(input.sparse == sparse);
  const auto learner = MakeReplica(job, recipe, Rank(1), Exchange(1), backend.get(), input);
  INFO(learner.status());
  REQUIRE(learner.ok());
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  for (const absl::Span<float> values : (*learner)->values()) {
    for (float& value : values) value = 0.3f * normal(random);
  }
  REQUIRE((*learner)->AdoptValues().ok());
  const auto rows_of = [&](uint64_t step) {
    std::vector<uint32_t> rows;
    for (uint32_t i = 0; i < kBatch; ++i) {
      rows.push_back(static_cast<uint32_t>((step * kBatch + 5 * i) % kRows));
    }
    return rows;
  };
  Result result;
  for (uint64_t step = 0; step < steps; ++step) {
    const std::vector<uint32_t> next = rows_of(step + 1);
    TrainPoint point;
    point.step = step;
    point.rate = 1 / static_cast<float>(1 + step);
    point.last = step + 1 == steps;
    point.continues = step > 0 && tells == Tells::kAll;
    // At times the next rows are not known, or are others in the end.
    if (step % 4 != 3) point.next = next;
    const auto losses = (*learner)->Train(data.train, rows_of(step + (step == 6 ? 1 : 0)), point);
    INFO(losses.status());
    REQUIRE(losses.ok());
    // A device is at work on the last one when the one before is known.
    CHECK(losses->size() == (device == "cpu" || step > 0 ? 1 : 0));
    result.losses.insert(result.losses.end(), losses->begin(), losses->end());
  }
  const auto last = (*learner)->EndSteps();
  REQUIRE(last.ok());
  CHECK(last->size() == (device == "cpu" ? 0 : 1));
  result.losses.insert(result.losses.end(), last->begin(), last->end());
  REQUIRE((*learner)->FormUpdate().ok());
  for (const auto& array : (*learner)->update()) {
    result.update.emplace_back(array.begin(), array.end());
  }
  return result;
}

// Entries by the largest of all arrays, as those of one may be nothing but roundings.
void CheckNear(const Result& got, const Result& want, double tolerance) {
  REQUIRE(got.losses.size() == want.losses.size());
  for (size_t step = 0; step < want.losses.size(); ++step) {
    CAPTURE(step);
    CHECK(got.losses[step] == Approx(want.losses[step]).epsilon(tolerance));
  }
  REQUIRE(got.update.size() == want.update.size());
  double most = 0, largest = 0;
  for (size_t p = 0; p < want.update.size(); ++p) {
    REQUIRE(got.update[p].size() == want.update[p].size());
    for (size_t i = 0; i < want.update[p].size(); ++i) {
      most = std::max<double>(most, std::fabs(got.update[p][i] - want.update[p][i]));
      largest = std::max<double>(largest, std::fabs(want.update[p][i]));
    }
  }
  CHECK(largest > 0);
  CHECK(most <= tolerance * largest);
}

void SetOptimizer(const std::string& name, v1::Job* job) {
  if (name == "sgd") return;
  v1::AdamW* const adamw = job->mutable_train()->mutable_optimizer()->mutable_adamw();
  adamw->set_learning_rate(0.01);
  adamw->set_beta1(0.8);
  adamw->set_beta2(0.9);
  adamw->set_epsilon(1e-3);
}

}  // namespace

TEST_CASE("steps in pieces learn what steps on whole minibatches do, dropout included",
          "[pieces][device]") {
  const std::string device = GENERATE("cpu", "cuda"), optimizer = GENERATE("sgd", "adamw");
  const std::string model =
      GENERATE("6 linear:8 relu linear:4 softmax",
               "7 drop:0.2 linear:9 relu drop:0.4 linear:5 drop:0.1 softmax", "5 linear:1 sigmoid");
  const PayloadKind payload = GENERATE(PayloadKind::kDelta, PayloadKind::kGradient);
  v1::Job whole = JobOf(model, 0);
  SetOptimizer(optimizer, &whole);
  const Result want = TrainOn("cpu", whole, RecipeOf(payload));
  for (const int64_t piece : {1, 3, 5, 11}) {
    CAPTURE(device, optimizer, model, piece);
    v1::Job job = whole;
    job.mutable_train()->set_micro_batch(piece);
    CheckNear(TrainOn(device, job, RecipeOf(payload)), want, 1e-4);
  }
}

TEST_CASE("steps in pieces with batch norm are on a GPU what they are on the CPU",
          "[pieces][device]") {
  const int64_t piece = GENERATE(4, 5, 7);
  const v1::Job job = JobOf("7 linear-:9 norm relu drop:0.3 linear:5 norm- softmax", piece);
  const Result cpu = TrainOn("cpu", job, RecipeOf(PayloadKind::kDelta));
  CheckNear(TrainOn("cuda", job, RecipeOf(PayloadKind::kDelta)), cpu, 1e-3);
  // And not those of the whole, whose statistics are others.
  const Result whole =
      TrainOn("cpu", JobOf("7 linear-:9 norm relu drop:0.3 linear:5 norm- softmax", 0),
              RecipeOf(PayloadKind::kDelta));
  CHECK(std::fabs(cpu.losses[0] - whole.losses[0]) > 1e-3);
}

TEST_CASE("a piece of a minibatch or more changes no bit", "[pieces][device]") {
  const std::string device = GENERATE("cpu", "cuda");
  const std::string model = "7 linear:9 norm relu drop:0.3 linear:5 softmax";
  const Result want = TrainOn(device, JobOf(model, 0), RecipeOf(PayloadKind::kDelta));
  for (const int64_t piece : {kBatch, kBatch + 1, int64_t{1048576}}) {
    const Result got = TrainOn(device, JobOf(model, piece), RecipeOf(PayloadKind::kDelta));
    CHECK(got.losses == want.losses);
    CHECK(got.update == want.update);
  }
}

TEST_CASE("in pieces sparse rows teach what they do at once", "[pieces][device][sparse]") {
  const std::string device = GENERATE("cpu", "cuda"), optimizer = GENERATE("sgd", "adamw");
  const PayloadKind payload = GENERATE(PayloadKind::kDelta, PayloadKind::kGradient);
  v1::Job job = JobOf("600 linear:8 relu drop:0.3 linear:4 softmax", 0);
  SetOptimizer(optimizer, &job);
  const Result want = TrainOn("cpu", job, RecipeOf(payload), 9, /*sparse=*/true);
  for (const int64_t piece : {1, 5, 6}) {
    CAPTURE(device, optimizer, piece);
    job.mutable_train()->set_micro_batch(piece);
    CheckNear(TrainOn(device, job, RecipeOf(payload), 9, /*sparse=*/true), want, 1e-4);
  }
}

TEST_CASE("minibatches of other sizes than the job's teach what they do in a job of their size",
          "[pieces][device][sparse]") {
  const std::string device = GENERATE("cpu", "cuda"), optimizer = GENERATE("sgd", "adamw");
  const PayloadKind payload = GENERATE(PayloadKind::kDelta, PayloadKind::kGradient);
  const bool sparse = GENERATE(false, true);
  v1::Job job = JobOf("600 linear:8 relu drop:0.3 linear:4 softmax", 0);
  SetOptimizer(optimizer, &job);
  const Result want = TrainOn("cpu", job, RecipeOf(payload), 9, sparse);
  job.mutable_data()->set_partition("by_speed");
  // kBatch rows are one minibatch of a slow worker, and three pieces of a fast one's.
  for (const int64_t batch_size : {20, 7, 5, 3}) {
    CAPTURE(device, optimizer, sparse, batch_size);
    job.mutable_train()->set_batch_size(batch_size);
    CheckNear(TrainOn(device, job, RecipeOf(payload), 9, sparse), want, 1e-4);
  }
}

TEST_CASE("what is clipped is the gradient of the whole minibatch, in pieces and on every device",
          "[pieces][device][clip]") {
  const std::string device = GENERATE("cpu", "cuda");
  const bool sparse = GENERATE(false, true);
  const PayloadKind payload = GENERATE(PayloadKind::kDelta, PayloadKind::kGradient);
  CAPTURE(device, sparse);
  v1::Job job = JobOf(
      sparse ? "600 linear:8 relu linear:4 softmax" : "6 linear:8 relu drop:0.2 linear:4 softmax",
      0);
  const Result free = TrainOn("cpu", job, RecipeOf(payload), 3, sparse);
  const auto norm_of = [](const Result& result) {
    double squares = 0;
    for (const auto& array : result.update) {
      for (const float value : array) squares += double{value} * value;
    }
    return std::sqrt(squares);
  };
  constexpr double kClip = 0.05;
  job.mutable_train()->set_clip_norm(kClip);
  const Result want = TrainOn("cpu", job, RecipeOf(payload), 3, sparse);
  if (payload == PayloadKind::kGradient) {
    REQUIRE(norm_of(free) > 2 * kClip);
    CHECK(norm_of(want) == Approx(kClip).epsilon(1e-4));
  } else {
    // Three steps of plain sgd, at most so long each.
    REQUIRE(norm_of(free) > 0.05 * kClip * (1 + 1 / 2.0 + 1 / 3.0));
    CHECK(norm_of(want) <= 0.05 * kClip * (1 + 1 / 2.0 + 1 / 3.0) * 1.0001);
  }
  for (const int64_t piece : {0, 5, 7}) {
    CAPTURE(piece);
    job.mutable_train()->set_micro_batch(piece);
    CheckNear(TrainOn(device, job, RecipeOf(payload), 3, sparse), want, 1e-4);
  }
  // A bound that nothing reaches changes no bit of what is sent.
  job.mutable_train()->set_clip_norm(1e6);
  job.mutable_train()->set_micro_batch(0);
  v1::Job unclipped = job;
  unclipped.mutable_train()->set_clip_norm(0);
  if (sparse) return;  // Columns are stepped in another order.
  CHECK(TrainOn(device, job, RecipeOf(payload), 3).update ==
        TrainOn(device, unclipped, RecipeOf(payload), 3).update);
}

TEST_CASE("muon's steps are the same on every device, in pieces too", "[pieces][device][muon]") {
  const std::string device = GENERATE("cpu", "cuda");
  const std::string model = GENERATE("6 linear:8 relu linear:4 softmax",
                                     "2 6 6 conv:5:3 relu linear:20 relu linear:4 softmax");
  v1::Job job = JobOf(model, 0);
  v1::Muon& muon = *job.mutable_train()->mutable_optimizer()->mutable_muon();
  muon.set_learning_rate(0.02);
  muon.set_momentum(0.9);
  muon.set_iterations(5);
  muon.mutable_adamw()->set_learning_rate(0.01);
  muon.mutable_adamw()->set_beta1(0.8);
  muon.mutable_adamw()->set_beta2(0.9);
  muon.mutable_adamw()->set_epsilon(1e-3);
  const Result want = TrainOn("cpu", job, RecipeOf(PayloadKind::kDelta));
  for (const int64_t piece : {0, 5}) {
    CAPTURE(device, model, piece);
    job.mutable_train()->set_micro_batch(piece);
    CheckNear(TrainOn(device, job, RecipeOf(PayloadKind::kDelta)), want, 2e-3);
  }
}

TEST_CASE("bf16 in pieces stays as near as its factors", "[pieces][device]") {
  const std::string device = GENERATE("cpu", "cuda");
  if (!On(device)->linear_bf16().ok()) return;
  v1::Job job = JobOf("6 linear:8 relu linear:4 softmax", 0);
  const Result want = TrainOn("cpu", job, RecipeOf(PayloadKind::kDelta));
  job.mutable_train()->set_precision("bf16");
  job.mutable_train()->set_micro_batch(5);
  CheckNear(TrainOn(device, job, RecipeOf(PayloadKind::kDelta)), want, 5e-2);
}

TEST_CASE("weights that the optimizer rounds need not be rounded again", "[pieces][device]") {
  const std::string device = GENERATE("cpu", "cuda"), optimizer = GENERATE("sgd", "adamw");
  const int64_t piece = GENERATE(0, 5);
  const bool sparse = GENERATE(false, true);
  if (!On(device)->linear_bf16().ok()) return;
  CAPTURE(device, optimizer, piece, sparse);
  v1::Job job = JobOf(sparse ? "600 linear:8 relu linear:4 softmax"
                             : "6 linear:8 norm relu drop:0.2 linear-:7 relu linear:4 softmax",
                      piece);
  SetOptimizer(optimizer, &job);
  job.mutable_train()->set_precision("bf16");
  const Recipe recipe = RecipeOf(PayloadKind::kDelta);
  const Result anew = TrainOn(device, job, recipe, 9, sparse, Tells::kNothing);
  const Result told = TrainOn(device, job, recipe, 9, sparse, Tells::kAll);
  CHECK(told.losses == anew.losses);
  CHECK(told.update == anew.update);
}

TEST_CASE("values that an exchange has brought are rounded", "[device]") {
  const std::string device = GENERATE("cpu", "cuda");
  const auto backend = On(device);
  if (!backend->linear_bf16().ok()) return;
  v1::Job job = JobOf("6 linear:8 relu linear:4 softmax", 0);
  job.mutable_train()->set_precision("bf16");
  const Dataset data = DataOf(job.model(), /*sparse=*/false);
  const auto learner =
      MakeReplica(job, RecipeOf(PayloadKind::kDelta), Rank(1), Exchange(1), backend.get(), {});
  REQUIRE(learner.ok());
  const std::vector<uint32_t> rows = {0, 1, 2, 3, 4, 5, 6, 7};
  std::vector<double> losses;
  const auto note = [&](const absl::StatusOr<Losses>& known) {
    REQUIRE(known.ok());
    losses.insert(losses.end(), known->begin(), known->end());
  };
  for (const float value : {0.1f, 0.4f}) {
    for (const absl::Span<float> values : (*learner)->values()) {
      for (size_t i = 0; i < values.size(); ++i) values[i] = i % 3 == 0 ? value : -value;
    }
    REQUIRE((*learner)->AdoptValues().ok());
    for (uint64_t step = 0; step < 2; ++step) {
      TrainPoint point;
      point.step = step;
      point.continues = step > 0;
      note((*learner)->Train(data, rows, point));
    }
    note((*learner)->EndSteps());
    REQUIRE((*learner)->FormUpdate().ok());
  }
  REQUIRE(losses.size() == 4);
  // From other values other losses, and as if the first ones had never been.
  CHECK(losses[2] != losses[0]);
  const auto fresh =
      MakeReplica(job, RecipeOf(PayloadKind::kDelta), Rank(1), Exchange(1), backend.get(), {});
  for (const absl::Span<float> values : (*fresh)->values()) {
    for (size_t i = 0; i < values.size(); ++i) values[i] = i % 3 == 0 ? 0.4f : -0.4f;
  }
  REQUIRE((*fresh)->AdoptValues().ok());
  note((*fresh)->Train(data, rows, {}));
  note((*fresh)->EndSteps());
  REQUIRE(losses.size() == 5);
  CHECK(losses[4] == losses[2]);
}

}  // namespace tessera
