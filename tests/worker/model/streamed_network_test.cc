// Evaluation in blocks against evaluation of the same parameters whole.
#include "worker/model/streamed_network.h"

#include <algorithm>
#include <cstring>

#include "tests/worker/model/counting_backend.h"
#include "tests/worker/model/model_fixture.h"

namespace tessera {
namespace {

constexpr int64_t kBatch = 12;

// Random examples, dense or with most inputs 0 and left out.
class RandomExamples final : public ExampleSource {
 public:
  RandomExamples(const v1::Model& model, int64_t count, unsigned seed, bool sparse)
      : rows_(model, count, seed), sparse_(sparse), shape_(*ShapeOf(model)) {
    if (!sparse) return;
    std::mt19937 random(seed + 100);
    for (int64_t r = 0; r < count; ++r) {
      for (int64_t c = 0; c < shape_.inputs(); ++c) {
        float& value = rows_.inputs[r * shape_.inputs() + c];
        if (r % 5 == 4 || random() % 6 != 0) value = 0;
        if (value == 0) continue;
        column_.push_back(static_cast<int32_t>(c));
        value_.push_back(value);
      }
      begin_.push_back(static_cast<int64_t>(column_.size()));
    }
  }
  int64_t count() const override { return rows_.rows; }
  Batch Inputs(int64_t begin, int64_t count) override {
    Batch batch = Labelled(begin, count);
    batch.labels = nullptr;
    batch.targets = nullptr;
    return batch;
  }
  Batch Labelled(int64_t begin, int64_t count) override {
    Batch batch = rows_.batch();
    batch.rows = count;
    batch.inputs = sparse_ ? nullptr : batch.inputs + begin * shape_.inputs();
    batch.labels += begin;
    if (batch.targets != nullptr) batch.targets += begin * shape_.outputs();
    if (sparse_) batch.sparse = {begin_.data() + begin, column_.data(), value_.data()};
    return batch;
  }

 private:
  Rows rows_;
  const bool sparse_;
  const ModelShape shape_;
  std::vector<int64_t> begin_ = {0};
  std::vector<int32_t> column_;
  std::vector<float> value_;
};

// Rows of a network's parameters; counts what is read of each.
class NetworkRows final : public RowSource {
 public:
  explicit NetworkRows(Network* network)
      : read(network->shape().parameters.size()), network_(*network) {}
  absl::Status ReadRows(const RowRange& rows, absl::Span<float> values) override {
    if (!failure.ok()) return failure;
    const ParameterSpec& spec = network_.shape().parameters.at(rows.parameter);
    REQUIRE((rows.row_begin >= 0 && rows.row_end <= spec.rows));
    REQUIRE(static_cast<int64_t>(values.size()) == rows.count() * spec.columns);
    std::copy_n(network_.arrays().parameter(rows.parameter).data() + rows.row_begin * spec.columns,
                values.size(), values.data());
    read[rows.parameter] += rows.count();
    const bool is_held = spec.is_vector || !spec.columns_are.empty();
    rows_max = std::max(rows_max, is_held ? 0 : rows.count());
    return absl::OkStatus();
  }

  std::vector<int64_t> read;
  int64_t rows_max = 0;
  absl::Status failure;

 private:
  Network& network_;
};

StreamedNetwork::Options OptionsOf(int64_t block_bytes, int64_t examples_max, bool sparse = false) {
  StreamedNetwork::Options options;
  options.batch_max = kBatch;
  options.sparse_input = sparse;
  options.block_bytes = block_bytes;
  options.examples_max = examples_max;
  return options;
}

std::unique_ptr<StreamedNetwork> Streamed(const v1::Model& model, Backend& backend,
                                          const StreamedNetwork::Options& options) {
  auto streamed = StreamedNetwork::Create(model, options, backend);
  INFO(streamed.status());
  REQUIRE(streamed.ok());
  return std::move(*streamed);
}

struct Evaluated {
  std::vector<float> constants;
  Scores scores;
};

Evaluated Whole(Network* network, RandomExamples* sample, RandomExamples* test) {
  Evaluated result;
  const auto constants = network->evaluation().Calibrate(sample);
  REQUIRE(constants.ok());
  result.constants = *constants;
  for (int64_t begin = 0; begin < test->count(); begin += kBatch) {
    const auto scores = network->evaluation().Score(
        test->Labelled(begin, std::min(kBatch, test->count() - begin)), *constants);
    REQUIRE(scores.ok());
    result.scores += *scores;
  }
  return result;
}

void CheckSame(const Evaluated& got, const Evaluated& want) {
  REQUIRE(got.constants.size() == want.constants.size());
  for (size_t i = 0; i < want.constants.size(); ++i) {
    REQUIRE(got.constants[i] == Approx(want.constants[i]).epsilon(1e-6).margin(1e-6));
  }
  CHECK(got.scores.loss_sum == Approx(want.scores.loss_sum).epsilon(1e-6));
  CHECK(got.scores.correct == want.scores.correct);
  CHECK(got.scores.precision_hits == want.scores.precision_hits);
  CHECK(got.scores.rows == want.scores.rows);
}

const std::vector<std::string> kModels = {
    "40 linear-:30 norm relu linear:7 sigmoid",
    "40 linear-:33 norm relu drop:0.4 linear-:20 norm relu linear-:5 norm- softmax",
    "40 linear:17 relu drop:0.3 linear:23 relu linear:1 sigmoid",
    "40 linear:6 softmax",
    "40 linear:9 norm- relu relu norm linear:3 softmax",
    "40 linear:33 gelu lnorm norm tanh linear:20 silu gnorm:5 linear:7 norm- lnorm- softmax"};
const std::vector<std::string> kDenseModels = {
    "10 norm relu linear:20 drop:0.5 norm linear:8 softmax",
    "10 relu norm- linear:8 softmax",
    "10 drop:0.3 linear:8 norm relu linear:5 relu norm softmax",
    "2 6 5 conv:4:3:1:1 norm relu max:2 drop:0.2 linear:9 norm relu linear:3 softmax",
    "2 6 5 norm- conv-:5:3 relu conv:3:2x1 avg:2:1:1 linear:9 linear:3 softmax",
    "1 6 5 conv:4:3 linear:9 relu linear:3 softmax",
    "3 6 5 max:2 linear:4 softmax",
    "10 lnorm leaky:0.1 linear:8 lnorm lnorm norm logistic linear:5 softmax",
    "4 6 5 lrn:3:1:0.75:1 conv:6:3:1:2:2:2 lnorm norm gelu gnorm:3 linear:9 lnorm linear:3 "
    "softmax"};

}  // namespace

TEST_CASE("evaluation in blocks gives what evaluation of the whole network gives", "[streamed]") {
  const std::string text = GENERATE(from_range(kModels), from_range(kDenseModels));
  const bool sparse = GENERATE(false, true);
  // One row to a block, a few, a number that does not divide the widths, and all of them.
  const int64_t block_bytes = GENERATE(as<int64_t>(), 1, 500, 2200, 1 << 20);
  const int64_t examples_max = GENERATE(as<int64_t>(), 12, 36, 1000);
  CAPTURE(sparse, text, block_bytes, examples_max);
  const v1::Model model = ModelOf(text);
  if (sparse && !model.layers(0).has_linear()) return;
  const auto backend = Cpu();
  Network::Options options;
  options.batch_max = kBatch;
  options.sparse_input = sparse;
  const auto network = *Network::Create(model, options, *backend);
  SetRandom(*network, nullptr, 3);
  RandomExamples sample(model, 101, 1, sparse), test(model, 77, 2, sparse);
  NetworkRows source(network.get());
  const auto streamed = Streamed(model, *backend, OptionsOf(block_bytes, examples_max, sparse));
  REQUIRE(streamed->Begin(&source, {}).ok());
  Evaluated got;
  const auto constants = streamed->Calibrate(&sample);
  REQUIRE(constants.ok());
  got.constants = *constants;
  const auto scores = streamed->Score(&test, *constants);
  INFO(scores.status());
  REQUIRE(scores.ok());
  got.scores = *scores;
  CheckSame(got, Whole(network.get(), &sample, &test));
  if (block_bytes == 1) CHECK(source.rows_max == 1);
}

TEST_CASE("products in blocks of sparse rows are the whole network's to the bit", "[streamed]") {
  const v1::Model model = ModelOf("40 linear-:33 norm relu linear:1 sigmoid");
  const auto backend = Cpu();
  Network::Options options;
  options.batch_max = kBatch;
  options.sparse_input = true;
  const auto network = *Network::Create(model, options, *backend);
  SetRandom(*network, nullptr, 3);
  RandomExamples sample(model, 50, 1, true), test(model, 20, 2, true);
  NetworkRows source(network.get());
  const auto streamed = Streamed(model, *backend, OptionsOf(700, kBatch, true));
  REQUIRE(streamed->Begin(&source, {}).ok());
  CHECK(*streamed->Calibrate(&sample) == Whole(network.get(), &sample, &test).constants);
}

TEST_CASE("every row is read once for the sample, up to the last norm, and once for each piece",
          "[streamed]") {
  const v1::Model model = ModelOf("10 linear:20 norm relu linear-:30 norm- linear:4 softmax");
  const auto backend = Cpu();
  const auto network = NetworkOf(model, kBatch, *backend);
  RandomExamples sample(model, 30, 1, false), test(model, 5 * kBatch, 2, false);
  NetworkRows source(network.get());
  const auto streamed = Streamed(model, *backend, OptionsOf(1000, 2 * kBatch));
  REQUIRE(streamed->Begin(&source, {}).ok());
  // The vectors: bias, scale and shift, and the last bias.
  CHECK(source.read == std::vector<int64_t>{0, 20, 20, 20, 0, 0, 4});
  const auto constants = streamed->Calibrate(&sample);
  REQUIRE(constants.ok());
  CHECK(source.read == std::vector<int64_t>{20, 20, 20, 20, 30, 0, 4});
  REQUIRE(streamed->Score(&test, *constants).ok());
  CHECK(source.read == std::vector<int64_t>{80, 20, 20, 20, 120, 12, 4});
}

TEST_CASE("factors multiply the weights that are read, and no bias", "[streamed]") {
  // Convolutions' weights are held whole, and those of linear layers are read in blocks.
  const std::string text = GENERATE(as<std::string>(), "10 linear:20 relu linear:4 softmax",
                                    "2 5 4 conv:3:2 relu conv:5:2 relu avg linear:4 softmax");
  CAPTURE(text);
  const v1::Model model = ModelOf(text);
  const auto backend = Cpu();
  const auto network = NetworkOf(model, kBatch, *backend);
  SetRandom(*network, nullptr, 3);
  RandomExamples test(model, 30, 2, false);
  NetworkRows source(network.get());
  const auto streamed = Streamed(model, *backend, OptionsOf(300, 1000));
  std::vector<float> factors(network->shape().parameters.size(), 1.0f);
  factors[2] = 0.25f;
  REQUIRE(streamed->Begin(&source, factors).ok());
  const auto got = streamed->Score(&test, {});
  for (float& w : network->arrays().parameter(2)) w *= 0.25f;
  REQUIRE(got.ok());
  RandomExamples sample(model, 1, 1, false);
  CheckSame({{}, *got}, Whole(network.get(), &sample, &test));
}

TEST_CASE("evaluation in blocks takes what MemoryNeeded says at most, and gives it back",
          "[streamed][memory]") {
  const std::string text =
      GENERATE(values<std::string>({kModels[0], kModels[1], kDenseModels[0], kDenseModels[3],
                                    kDenseModels[4], kDenseModels[5]}));
  const int64_t block_bytes = GENERATE(as<int64_t>(), 1, 900, 1 << 20);
  const int64_t sample_rows = GENERATE(as<int64_t>(), 5, 100);
  CAPTURE(text, block_bytes, sample_rows);
  const v1::Model model = ModelOf(text);
  const auto cpu = Cpu();
  const auto network = NetworkOf(model, kBatch, *cpu);
  RandomExamples sample(model, sample_rows, 1, false), test(model, 50, 2, false);
  NetworkRows source(network.get());
  CountingBackend backend(*cpu);
  const StreamedNetwork::Options options = OptionsOf(block_bytes, 2 * kBatch);
  {
    const auto streamed = Streamed(model, backend, options);
    REQUIRE(streamed->Begin(&source, {}).ok());
    const int64_t between = backend.counting.held;
    const auto constants = streamed->Calibrate(&sample);
    REQUIRE(constants.ok());
    CHECK(backend.counting.held == between);
    REQUIRE(streamed->Score(&test, *constants).ok());
    CHECK(backend.counting.held == between);
  }
  CHECK(backend.counting.most ==
        StreamedNetwork::MemoryNeeded(*PlanOf(model), options, sample_rows, 50));
  CHECK(backend.counting.held == 0);
}

TEST_CASE("what is in front of the first linear layer is calibrated in pieces of the sample",
          "[streamed][memory]") {
  // Images of 12 x 12 with 16 channels become four numbers: the sample's alone grow with it.
  const v1::Model model = ModelOf(
      "1 12 12 conv:16:3:1:1 norm relu conv:16:3:1:1 norm relu conv:4:3:1:1 norm relu avg "
      "linear:9 norm relu linear:3 softmax");
  const StreamedNetwork::Options options = OptionsOf(1 << 20, 2 * kBatch);
  const auto needed = [&](int64_t rows) {
    return StreamedNetwork::MemoryNeeded(*PlanOf(model), options, rows, 50);
  };
  const int64_t floats = 4 + 9 + 9;
  CHECK(needed(1 << 20) - kCalibrationStoreBytes < (1 << 20) * floats * 2 * 4);
}

TEST_CASE("what cannot be evaluated in blocks is a status", "[streamed]") {
  const auto backend = Cpu();
  const v1::Model model = ModelOf("10 linear:20 norm linear:3 softmax");
  const auto network = NetworkOf(model, kBatch, *backend);
  NetworkRows source(network.get());
  RandomExamples none(model, 0, 1, false), some(model, 9, 1, false);
  const auto streamed = Streamed(model, *backend, OptionsOf(500, kBatch));
  REQUIRE(streamed->Begin(&source, {}).ok());
  CHECK(streamed->Calibrate(&none).status().message() ==
        "calibration: the sample is empty, want at least one row");
  CHECK(streamed->Score(&some, std::vector<float>(39)).status().message() ==
        "score: constants are 39 values, want 40");
  CHECK(streamed->Score(&none, std::vector<float>(40))->rows == 0);
  source.failure = absl::UnavailableError("no server");
  CHECK(streamed->Calibrate(&some).status() == source.failure);
  CHECK(streamed->Score(&some, std::vector<float>(40)).status() == source.failure);
  CHECK(streamed->Begin(&source, {}) == source.failure);

  const auto refused = [&](const std::string& text, const StreamedNetwork::Options& options) {
    return StreamedNetwork::Create(ModelOf(text), options, *backend).status().code() ==
           absl::StatusCode::kInvalidArgument;
  };
  CHECK(refused("9 relu linear:3 softmax", OptionsOf(500, 1, true)));
  CHECK(refused("9 linear:3 softmax", OptionsOf(0, 1)));
  CHECK(refused("9 linear:3 softmax", OptionsOf(1, 0)));
  CHECK(refused("9 linear:3", OptionsOf(1, 1)));
}

}  // namespace tessera
