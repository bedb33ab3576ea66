// A network on sparse rows against the same network on the same rows written out.
#include <algorithm>
#include <cmath>

#include "tests/worker/model/counting_backend.h"
#include "tests/worker/model/model_fixture.h"
#include "worker/model/local_optimizer.h"
#include "worker/model/network_memory.h"

namespace tessera {
namespace {

constexpr int64_t kBatch = 12;

// Rows with about one entry in eight, some empty; the zeros are dropped in `sparse`.
struct SparseCopy {
  SparseCopy(const v1::Model& model, int64_t count, unsigned seed) : rows(model, count, seed) {
    const int64_t inputs = ShapeOf(model)->inputs();
    std::mt19937 random(seed + 100);
    for (int64_t r = 0; r < count; ++r) {
      for (int64_t c = 0; c < inputs; ++c) {
        float& value = rows.inputs[r * inputs + c];
        if (r % 6 == 5 || random() % 8 != 0) value = 0;
        if (value == 0) continue;
        column.push_back(static_cast<int32_t>(c));
        values.push_back(value);
      }
      begin.push_back(static_cast<int64_t>(column.size()));
    }
  }
  Batch dense() const { return rows.batch(); }
  Batch sparse() const {
    Batch batch = rows.batch();
    batch.inputs = nullptr;
    batch.sparse = {begin.data(), column.data(), values.data()};
    return batch;
  }

  Rows rows;
  std::vector<int64_t> begin = {0};
  std::vector<int32_t> column;
  std::vector<float> values;
};

Network::Options SparseOptions(bool steps_first_weight = false) {
  Network::Options options;
  options.batch_max = kBatch;
  options.sparse_input = true;
  options.steps_first_weight = steps_first_weight;
  return options;
}

std::unique_ptr<Network> SparseNetwork(const v1::Model& model, Backend& backend,
                                       const Network::Options& options = SparseOptions()) {
  auto network = Network::Create(model, options, backend);
  INFO(network.status());
  REQUIRE(network.ok());
  return std::move(*network);
}

// The largest difference, as a share of the largest value.
double Distance(absl::Span<const float> a, absl::Span<const float> b) {
  REQUIRE(a.size() == b.size());
  double most = 0, size = 1e-30;
  for (size_t i = 0; i < a.size(); ++i) {
    most = std::max(most, std::fabs(double{a[i]} - double{b[i]}));
    size = std::max(size, std::fabs(double{b[i]}));
  }
  return most / size;
}

v1::Optimizer Sgd(double momentum = 0, double decay = 0) {
  v1::Optimizer optimizer;
  optimizer.mutable_sgd()->set_learning_rate(0.1);
  optimizer.mutable_sgd()->set_momentum(momentum);
  optimizer.mutable_sgd()->set_weight_decay(decay);
  return optimizer;
}

const std::vector<std::string> kModels = {
    "90 linear:30 relu linear:7 sigmoid", "90 linear-:33 norm relu linear:20 relu linear:5 softmax",
    "90 linear:6 softmax", "90 linear:17 drop:0.3 linear:1 sigmoid", "90 linear-:3 norm- softmax"};

}  // namespace

TEST_CASE(
    "loss and gradients on sparse rows are those on the same rows written out, batch by batch",
    "[sparse_input]") {
  const v1::Model model = ModelOf(GENERATE(from_range(kModels)));
  const auto backend = Cpu(GENERATE(1, 2));
  const auto sparse = SparseNetwork(model, *backend);
  const auto dense = NetworkOf(model, kBatch, *backend);
  SetRandom(*sparse, nullptr, 1);
  SetRandom(*dense, nullptr, 1);
  for (uint64_t step = 0; step < 4; ++step) {
    // Batches of many sizes: what the one before touched must not show in the next.
    const SparseCopy data(model, kBatch - 3 * step, step);
    const auto a = sparse->steps().TrainStep(data.sparse(), {7, step, 0});
    const auto b = dense->steps().TrainStep(data.dense(), {7, step, 0});
    REQUIRE((a.ok() && b.ok()));
    CHECK(a->loss == Approx(b->loss).epsilon(1e-5));
    CHECK(a->correct == b->correct);
    CHECK(Distance(sparse->arrays().gradients(), dense->arrays().gradients()) < 1e-5);
  }
}

TEST_CASE("a network that steps its first weight itself goes where plain sgd goes, to the bit",
          "[sparse_input]") {
  const v1::Model model = ModelOf(GENERATE(from_range(kModels)));
  const auto backend = Cpu();
  const auto by_columns = SparseNetwork(model, *backend, SparseOptions(true));
  const auto by_rule = SparseNetwork(model, *backend);
  SetRandom(*by_columns, nullptr, 1);
  SetRandom(*by_rule, nullptr, 1);
  const auto fast = *LocalOptimizer::Create(Sgd(), *by_columns, *backend);
  const auto plain = *LocalOptimizer::Create(Sgd(), *by_rule, *backend);
  for (uint64_t step = 0; step < 5; ++step) {
    const SparseCopy data(model, kBatch - step, step);
    REQUIRE(by_columns->steps().TrainStep(data.sparse(), {7, step, 0}).ok());
    REQUIRE(by_rule->steps().TrainStep(data.sparse(), {7, step, 0}).ok());
    Update update;
    update.rate = 1.0f / static_cast<float>(step + 1);
    REQUIRE(fast->Step(update).ok());
    REQUIRE(plain->Step(update).ok());
    CHECK(by_columns->arrays().parameters() == by_rule->arrays().parameters());
    CHECK(by_columns->arrays().gradient(0).empty());
  }
}

TEST_CASE("only plain sgd leaves entries without gradient what they are", "[sparse_input]") {
  CHECK(LocalOptimizer::LeavesZeroGradients(Sgd()));
  CHECK_FALSE(LocalOptimizer::LeavesZeroGradients(Sgd(0.9)));
  CHECK_FALSE(LocalOptimizer::LeavesZeroGradients(Sgd(0, 0.01)));
  v1::Optimizer adam;
  adam.mutable_adam();
  CHECK_FALSE(LocalOptimizer::LeavesZeroGradients(adam));
}

TEST_CASE("constants and scores on sparse rows are those on the same rows written out",
          "[sparse_input]") {
  const v1::Model model = ModelOf(GENERATE(from_range(kModels)));
  const auto backend = Cpu();
  const auto sparse = SparseNetwork(model, *backend);
  const auto dense = NetworkOf(model, kBatch, *backend);
  SetRandom(*sparse, nullptr, 1);
  SetRandom(*dense, nullptr, 1);
  const SparseCopy sample(model, 3 * kBatch + 5, 1);  // Longer than a batch.
  const auto a = Calibrated(*sparse, sample.sparse()), b = Calibrated(*dense, sample.dense());
  REQUIRE((a.ok() && b.ok()));
  CHECK(Distance(*a, *b) < 1e-5);
  const SparseCopy test(model, kBatch, 3);
  const auto sparse_scores = sparse->evaluation().Score(test.sparse(), *a);
  const auto dense_scores = dense->evaluation().Score(test.dense(), *b);
  REQUIRE((sparse_scores.ok() && dense_scores.ok()));
  CHECK(sparse_scores->loss_sum == Approx(dense_scores->loss_sum).epsilon(1e-5));
  CHECK(sparse_scores->correct == dense_scores->correct);
  CHECK(sparse_scores->precision_hits == dense_scores->precision_hits);
}

TEST_CASE("bf16 leaves a first layer on sparse rows in f32", "[sparse_input]") {
  const auto backend = Cpu();
  if (!backend->linear_bf16().ok()) return;
  const v1::Model model = ModelOf("90 linear:6 softmax");
  Network::Options options = SparseOptions();
  options.precision = Precision::kBf16;
  const auto bf16 = SparseNetwork(model, *backend, options), f32 = SparseNetwork(model, *backend);
  SetRandom(*bf16, nullptr, 1);
  SetRandom(*f32, nullptr, 1);
  const SparseCopy data(model, kBatch, 1);
  REQUIRE(bf16->steps().TrainStep(data.sparse(), {}).ok());
  REQUIRE(f32->steps().TrainStep(data.sparse(), {}).ok());
  CHECK(bf16->arrays().gradients() == f32->arrays().gradients());
}

TEST_CASE("what is no batch of sparse rows is refused and changes nothing", "[sparse_input]") {
  const auto backend = Cpu();
  const v1::Model model = ModelOf("90 linear:6 softmax");
  const auto network = SparseNetwork(model, *backend);
  SparseCopy data(model, kBatch, 1);
  const auto code = [&](const Batch& batch) {
    const absl::StatusCode train = network->steps().TrainStep(batch, {}).status().code();
    CHECK(network->evaluation().Score(batch, {}).status().code() == train);
    return train;
  };
  CHECK(code(data.dense()) == absl::StatusCode::kInvalidArgument);
  CHECK(code(data.sparse()) == absl::StatusCode::kOk);
  const std::vector<float> before(network->arrays().gradients().begin(),
                                  network->arrays().gradients().end());
  for (const int32_t column : {-1, 90}) {
    data.column.back() = column;
    CHECK(code(data.sparse()) == absl::StatusCode::kInvalidArgument);
  }
  CHECK(network->arrays().gradients() == absl::MakeConstSpan(before));
  const auto dense = NetworkOf(model, kBatch, *backend);
  CHECK(dense->steps().TrainStep(data.sparse(), {}).status().code() ==
        absl::StatusCode::kInvalidArgument);
}

TEST_CASE("only a linear layer may read sparse rows", "[sparse_input]") {
  const auto backend = Cpu();
  for (const char* const text :
       {"9 relu linear:3 softmax", "9 norm linear:3 softmax", "9 drop:0.1 linear:3 softmax"}) {
    const auto network = Network::Create(ModelOf(text), SparseOptions(), *backend);
    CHECK(network.status().code() == absl::StatusCode::kInvalidArgument);
  }
}

TEST_CASE("a network on sparse rows allocates what MemoryNeeded says, whatever the precision",
          "[sparse_input][memory]") {
  const v1::Model model = ModelOf(GENERATE(from_range(kModels)));
  const Precision precision = GENERATE(Precision::kF32, Precision::kBf16);
  const auto cpu = Cpu();
  CountingBackend backend(*cpu);
  if (precision == Precision::kBf16 && !backend.linear_bf16().ok()) return;
  const int64_t sample_rows = 3 * kBatch + 5;
  const bool steps_first_weight = GENERATE(false, true);
  const int64_t minibatch_max = GENERATE(0, 5 * kBatch);
  const NetworkMemory want = MemoryNeeded(*PlanOf(model), kBatch, precision, sample_rows,
                                          /*sparse_input=*/true, steps_first_weight, minibatch_max);
  Network::Options options = SparseOptions(steps_first_weight);
  options.minibatch_max = minibatch_max;
  options.precision = precision;
  const auto network = SparseNetwork(model, backend, options);
  CHECK(backend.counting.held == want.held_bytes);
  const SparseCopy data(model, kBatch, 1), sample(model, sample_rows, 2);
  REQUIRE(network->steps().TrainStep(data.sparse(), {}).ok());
  REQUIRE(Calibrated(*network, sample.sparse()).ok());
  CHECK(backend.counting.most == want.held_bytes + want.calibration_bytes);
}

}  // namespace tessera
