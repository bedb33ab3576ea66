// A network on a GPU against the same network on the CPU, step by step and in evaluation. Runs on a
// GPU, and on one that the host plays, which is as lazy as a GPU may be: a result that is read too
// early, or memory that is written too early, shows.
#include <algorithm>
#include <cmath>

#include "kernels/cuda/backend.h"
#include "tests/worker/model/model_fixture.h"
#include "worker/exchange/row_source.h"
#include "worker/model/local_optimizer.h"
#include "worker/model/streamed_network.h"

namespace tessera {
namespace {

constexpr int64_t kBatch = 12;

std::unique_ptr<Backend> Device() {
  DeviceOptions options;
  options.cudnn_if_slower = true;  // So few channels would be products' alone.
  auto backend = CreateCudaBackend(0, options);
  INFO(backend.status());
  REQUIRE(backend.ok());
  return *std::move(backend);
}

std::unique_ptr<Network> Make(const v1::Model& model, const Network::Options& options,
                              Backend& backend) {
  auto network = Network::Create(model, options, backend);
  INFO(network.status());
  REQUIRE(network.ok());
  SetRandom(**network, nullptr, 5);
  (*network)->arrays().SendParameters();
  REQUIRE(backend.Finish().ok());
  return *std::move(network);
}

// As a share of the largest.
double Difference(absl::Span<const float> a, absl::Span<const float> b) {
  REQUIRE(a.size() == b.size());
  double most = 0, largest = 1e-30;
  for (size_t i = 0; i < a.size(); ++i) {
    most = std::max<double>(most, std::fabs(a[i] - b[i]));
    largest = std::max<double>(largest, std::fabs(b[i]));
  }
  return most / largest;
}

// Rows of which most inputs are 0, and left out in sparse().
struct MostlyZeros {
  MostlyZeros(const v1::Model& model, int64_t count, unsigned seed) : rows(model, count, seed) {
    const int64_t inputs = ShapeOf(model)->inputs();
    std::mt19937 random(seed + 100);
    for (int64_t i = 0; i < count * inputs; ++i) {
      if (random() % 4 != 0) rows.inputs[i] = 0;
      if (rows.inputs[i] != 0) {
        column.push_back(static_cast<int32_t>(i % inputs));
        value.push_back(rows.inputs[i]);
      }
      if (i % inputs == inputs - 1) begin.push_back(static_cast<int64_t>(column.size()));
    }
  }
  Batch sparse() const {
    Batch batch = rows.batch();
    batch.inputs = nullptr;
    batch.sparse = {begin.data(), column.data(), value.data()};
    return batch;
  }
  Rows rows;
  std::vector<int64_t> begin = {0};
  std::vector<int32_t> column;
  std::vector<float> value;
};

const std::vector<std::string>& Models() {
  static const std::vector<std::string> models = {
      "6 linear:8 relu linear:4 softmax",
      "7 linear-:9 norm relu linear:5 norm- softmax",
      "6 linear:8 norm relu drop:0.3 linear-:4 norm- softmax",
      "6 norm relu linear:8 drop:0.5 linear:5 sigmoid",
      "5 linear:1 sigmoid",
      "6 lnorm linear:8 gelu lnorm linear:6 silu gnorm:3 linear:4 softmax",
      "4 5 4 conv:4:3:1:2:2:2 lnorm relu lrn:3:1:0.75:1 gnorm:2 leaky:0.1 linear:5 tanh softmax",
      "tokens:7:5 embed:8 lnorm attn:2:0.3 linear:12 gelu linear:8 lnorm tied softmax",
      "2 5 4 conv:4:3:1:1 norm relu max:2 drop:0.3 linear:5 softmax",
      "1 5 4 conv-:3:3x2:2x1:1 relu avg:2:1:1 conv:4:1 linear:6 norm relu linear:4 softmax"};
  return models;
}

// Steps on changing batches, each made in the same memory; the roundings of `precision` apart.
void CheckSteps(const std::string& text, Precision precision, double tolerance) {
  CAPTURE(text);
  const v1::Model model = ModelOf(text);
  const auto cpu = Cpu(), device = Device();
  Network::Options options;
  options.batch_max = kBatch;
  options.fetches_gradients = true;
  const auto want = Make(model, options, *cpu);
  options.precision = precision;
  const auto got = Make(model, options, *device);
  v1::Optimizer sgd;
  sgd.mutable_sgd()->set_learning_rate(0.05);
  sgd.mutable_sgd()->set_momentum(0.9);
  const auto want_optimizer = *LocalOptimizer::Create(sgd, *want, *cpu),
             got_optimizer = *LocalOptimizer::Create(sgd, *got, *device);
  Rows batch(model, kBatch, 1);
  for (uint64_t step = 0; step < 6; ++step) {
    CAPTURE(step);
    const Rows next(model, kBatch - static_cast<int64_t>(step % 3),
                    10 + static_cast<unsigned>(step));
    batch.rows = next.rows;
    std::copy(next.inputs.begin(), next.inputs.end(), batch.inputs.begin());
    std::copy(next.labels.begin(), next.labels.end(), batch.labels.begin());
    std::copy(next.targets.begin(), next.targets.end(), batch.targets.begin());
    const auto want_loss = want->steps().TrainStep(batch.batch(), {3, step, 1}),
               got_loss = got->steps().TrainStep(batch.batch(), {3, step, 1});
    REQUIRE(want_loss.ok());
    REQUIRE(got_loss.ok());
    CHECK(got_loss->loss == Approx(want_loss->loss).epsilon(tolerance));
    CHECK(got_loss->rows == want_loss->rows);
    if (step == 3) {
      REQUIRE(device->Finish().ok());
      // All together: those of a bias that a norm takes away are nothing but roundings.
      CHECK(Difference(got->arrays().gradients(), want->arrays().gradients()) < 100 * tolerance);
    }
    REQUIRE(want_optimizer->Step({}).ok());
    REQUIRE(got_optimizer->Step({}).ok());
  }
  got->arrays().FetchParameters();
  REQUIRE(device->Finish().ok());
  CHECK(Difference(got->arrays().parameters(), want->arrays().parameters()) < 10 * tolerance);
}

class NetworkRows final : public RowSource {
 public:
  explicit NetworkRows(Network* network) : network_(*network) {}
  absl::Status ReadRows(const RowRange& rows, absl::Span<float> values) override {
    const int64_t columns = network_.shape().parameters.at(rows.parameter).columns;
    std::copy_n(network_.arrays().parameter(rows.parameter).data() + rows.row_begin * columns,
                values.size(), values.data());
    return absl::OkStatus();
  }

 private:
  Network& network_;
};

class Examples final : public ExampleSource {
 public:
  Examples(const MostlyZeros* data, int64_t inputs, int64_t outputs, bool sparse)
      : data_(*data), inputs_(inputs), outputs_(outputs), sparse_(sparse) {}
  int64_t count() const override { return data_.rows.rows; }
  Batch Inputs(int64_t begin, int64_t count) override {
    Batch batch = Labelled(begin, count);
    batch.labels = nullptr;
    batch.targets = nullptr;
    return batch;
  }
  Batch Labelled(int64_t begin, int64_t count) override {
    Batch batch = sparse_ ? data_.sparse() : data_.rows.batch();
    batch.rows = count;
    if (sparse_) {
      batch.sparse.begin += begin;
    } else {
      batch.inputs += begin * inputs_;
    }
    batch.labels += begin * static_cast<int64_t>(data_.rows.labels.size()) / data_.rows.rows;
    if (batch.targets != nullptr) batch.targets += begin * outputs_;
    return batch;
  }

 private:
  const MostlyZeros& data_;
  const int64_t inputs_, outputs_;
  const bool sparse_;
};

void CheckScores(const Scores& got, const Scores& want) {
  CHECK(got.loss_sum == Approx(want.loss_sum).epsilon(1e-5));
  CHECK(got.correct == want.correct);
  CHECK(got.rows == want.rows);
  CHECK(got.precision_hits == want.precision_hits);
}

}  // namespace

TEST_CASE("training steps on the device are the CPU's, within f32's roundings", "[device]") {
  for (const std::string& text : Models()) CheckSteps(text, Precision::kF32, 1e-5);
}

TEST_CASE("tf32 and bf16 stay as near as their factors", "[device]") {
  CheckSteps(Models()[0], Precision::kTf32, 1e-2);
  CheckSteps(Models()[0], Precision::kBf16, 5e-2);
}

TEST_CASE("a first layer on sparse rows learns on the device as on the CPU", "[device][sparse]") {
  const bool steps_first_weight = GENERATE(false, true);
  const v1::Model model = ModelOf("40 linear:8 norm relu linear:4 softmax");
  const auto cpu = Cpu(), device = Device();
  Network::Options options;
  options.batch_max = kBatch;
  options.sparse_input = true;
  options.steps_first_weight = steps_first_weight;
  const auto want = Make(model, options, *cpu), got = Make(model, options, *device);
  v1::Optimizer sgd;
  sgd.mutable_sgd()->set_learning_rate(0.05);
  const auto want_optimizer = *LocalOptimizer::Create(sgd, *want, *cpu),
             got_optimizer = *LocalOptimizer::Create(sgd, *got, *device);
  for (uint64_t step = 0; step < 5; ++step) {
    const MostlyZeros batch(model, kBatch, 10 + static_cast<unsigned>(step));
    const auto want_loss = want->steps().TrainStep(batch.sparse(), {3, step, 1}),
               got_loss = got->steps().TrainStep(batch.sparse(), {3, step, 1});
    REQUIRE(got_loss.ok());
    CHECK(got_loss->loss == Approx(want_loss->loss).epsilon(1e-5));
    REQUIRE(want_optimizer->Step({}).ok());
    REQUIRE(got_optimizer->Step({}).ok());
  }
  got->arrays().FetchParameters();
  REQUIRE(device->Finish().ok());
  CHECK(Difference(got->arrays().parameters(), want->arrays().parameters()) < 1e-4);
}

TEST_CASE("calibration and scores on the device are the CPU's, whole and in blocks", "[device]") {
  const bool sparse = GENERATE(false, true);
  for (const std::string& text : Models()) {
    CAPTURE(text, sparse);
    const v1::Model model = ModelOf(text);
    if (sparse && !model.layers(0).has_linear()) continue;
    const ModelShape shape = *ShapeOf(model);
    const auto cpu = Cpu(), device = Device();
    Network::Options options;
    options.batch_max = kBatch;
    options.sparse_input = sparse;
    options.evaluates_only = true;
    const auto want = Make(model, options, *cpu), got = Make(model, options, *device);
    const MostlyZeros data(model, 29, 7);
    Examples examples(&data, shape.inputs(), shape.outputs(), sparse);
    const auto want_constants = want->evaluation().Calibrate(&examples),
               got_constants = got->evaluation().Calibrate(&examples);
    REQUIRE(got_constants.ok());
    CHECK(Difference(*got_constants, *want_constants) < 1e-5);
    Scores want_scores;
    for (int64_t begin = 0; begin < 29; begin += kBatch) {
      const Batch batch = examples.Labelled(begin, std::min<int64_t>(kBatch, 29 - begin));
      const auto a = want->evaluation().Score(batch, *want_constants),
                 b = got->evaluation().Score(batch, *want_constants);
      REQUIRE(b.ok());
      CheckScores(*b, *a);
      want_scores += *a;
    }
    StreamedNetwork::Options streaming;
    streaming.batch_max = kBatch;
    streaming.sparse_input = sparse;
    streaming.block_bytes = 300;
    streaming.examples_max = 26;
    const auto streamed = StreamedNetwork::Create(model, streaming, *device);
    REQUIRE(streamed.ok());
    NetworkRows rows(want.get());
    REQUIRE((*streamed)->Begin(&rows, {}).ok());
    const auto streamed_constants = (*streamed)->Calibrate(&examples);
    REQUIRE(streamed_constants.ok());
    CHECK(Difference(*streamed_constants, *want_constants) < 1e-5);
    const auto streamed_scores = (*streamed)->Score(&examples, *want_constants);
    REQUIRE(streamed_scores.ok());
    CheckScores(*streamed_scores, want_scores);
  }
}

TEST_CASE("a batch that was sent ahead trains as one that was not, and scoring drops it",
          "[device]") {
  const auto device = Device();
  const v1::Model model = ModelOf("6 linear:8 norm relu linear:4 softmax");
  Network::Options options;
  options.batch_max = kBatch;
  const auto ahead = Make(model, options, *device), plain = Make(model, options, *device);
  v1::Optimizer sgd;
  sgd.mutable_sgd()->set_learning_rate(0.05);
  const auto ahead_optimizer = *LocalOptimizer::Create(sgd, *ahead, *device),
             plain_optimizer = *LocalOptimizer::Create(sgd, *plain, *device);
  REQUIRE(ahead->input().wants_next());
  Rows rows(model, kBatch, 1);
  const std::vector<float> constants(ahead->plan().constants, 1.0f);
  for (uint64_t step = 0; step < 8; ++step) {
    CAPTURE(step);
    const Rows batch(model, kBatch, 10 + static_cast<unsigned>(step)),
        next(model, kBatch, 11 + static_cast<unsigned>(step));
    CHECK(ahead->input().holds_next() == (step > 0 && step != 5));
    REQUIRE((ahead->input().holds_next() ? ahead->steps().BeginStepOnNext({0, step, 0})
                                         : ahead->steps().BeginStep(batch.batch(), {0, step, 0}))
                .ok());
    REQUIRE(ahead_optimizer->Step({}).ok());
    // The same host memory each time.
    rows.inputs = next.inputs;
    rows.labels = next.labels;
    REQUIRE(ahead->input().SendNext(rows.batch()).ok());
    const auto got = ahead->steps().EndStep();
    const auto want = plain->steps().TrainStep(batch.batch(), {0, step, 0});
    REQUIRE(plain_optimizer->Step({}).ok());
    REQUIRE((got.ok() && want.ok()));
    CHECK(got->loss == want->loss);
    if (step == 4) REQUIRE(ahead->evaluation().Score(batch.batch(), constants).ok());
  }
  ahead->arrays().FetchParameters();
  plain->arrays().FetchParameters();
  REQUIRE(device->Finish().ok());
  CHECK(ahead->arrays().parameters() == plain->arrays().parameters());
}

TEST_CASE("a step that is begun before the one before is ended changes neither", "[device]") {
  // Waiting for the one network's results is not to do the other's work.
  const auto device = Device(), other_device = Device();
  const std::string model_text = GENERATE("6 linear:8 norm relu linear:4 softmax",
                                          "7 drop:0.2 linear:9 relu linear:5 softmax");
  const int64_t piece = GENERATE(as<int64_t>(), 12, 5);
  CAPTURE(model_text, piece);
  const v1::Model model = ModelOf(model_text);
  Network::Options options;
  options.batch_max = kBatch;
  const auto ahead = Make(model, options, *device), plain = Make(model, options, *other_device);
  v1::Optimizer sgd;
  sgd.mutable_sgd()->set_learning_rate(0.05);
  const auto ahead_optimizer = *LocalOptimizer::Create(sgd, *ahead, *device),
             plain_optimizer = *LocalOptimizer::Create(sgd, *plain, *other_device);
  REQUIRE(ahead->input().runs_ahead());
  std::vector<double> got, want;
  const auto end_one = [&] {
    const auto ended = ahead->steps().EndPiece();
    REQUIRE(ended.ok());
    if (ended->has_value()) got.push_back((*ended)->loss);
  };
  for (uint64_t step = 0; step < 20; ++step) {
    CAPTURE(step);
    const Rows batch(model, kBatch, 10 + static_cast<unsigned>(step)),
        other(model, kBatch, 50 + static_cast<unsigned>(step));
    for (int64_t first = 0; first < kBatch; first += piece) {
      // Some batches are sent ahead, and of these some are not those that come.
      const Batch now = batch.piece(first, piece);
      if (step % 3 == 1) REQUIRE(ahead->input().SendNext(now).ok());
      if (step % 3 == 2) REQUIRE(ahead->input().SendNext(other.piece(first, piece)).ok());
      REQUIRE((step % 3 == 1 ? ahead->steps().BeginStepOnNext({3, step, 1})
                             : ahead->steps().BeginStep(now, {3, step, 1}))
                  .ok());
      if (first + piece >= kBatch) REQUIRE(ahead_optimizer->Step({}).ok());
      if (ahead->steps().begun() == kStepsBegunMax) end_one();
      CHECK(ahead->steps().begun() == kStepsBegunMax - 1);
    }
    const auto trained = TrainInPieces(*plain, batch, piece, {3, step, 1});
    REQUIRE(plain_optimizer->Step({}).ok());
    REQUIRE(trained.ok());
    want.push_back(trained->loss);
  }
  end_one();
  CHECK(ahead->steps().begun() == 0);
  CHECK(got == want);
  ahead->arrays().FetchParameters();
  plain->arrays().FetchParameters();
  REQUIRE((device->Finish().ok() && other_device->Finish().ok()));
  CHECK(ahead->arrays().parameters() == plain->arrays().parameters());
}

TEST_CASE("an optimizer that follows each gradient leaves what one behind all of them does",
          "[device]") {
  const auto device = Device();
  const std::string optimizer = GENERATE("momentum", "adamw");
  v1::Optimizer options;
  if (optimizer == "momentum") {
    options.mutable_sgd()->set_learning_rate(0.05);
    options.mutable_sgd()->set_momentum(0.9);
  } else {
    options.mutable_adamw()->set_learning_rate(0.01);
    options.mutable_adamw()->set_beta1(0.8);
    options.mutable_adamw()->set_beta2(0.9);
    options.mutable_adamw()->set_epsilon(1e-3);
    options.mutable_adamw()->set_weight_decay(0.1);
  }
  // Some steps fetch what they have trained, as the last one before an exchange does.
  struct Fetching final : GradientWork {
    Fetching(LocalOptimizer* optimizer, Network* network)
        : optimizer(*optimizer), network(*network) {}
    void Queue(int i) override {
      order.push_back(i);
      optimizer.Queue(i);
      network.arrays().FetchParameter(i);
    }
    LocalOptimizer& optimizer;
    Network& network;
    std::vector<int> order;
  };
  for (const std::string& text : Models()) {
    CAPTURE(text, optimizer);
    const v1::Model model = ModelOf(text);
    Network::Options with;
    with.batch_max = kBatch;
    const auto network = Make(model, with, *device), plain = Make(model, with, *device);
    const auto following = *LocalOptimizer::Create(options, *network, *device),
               behind = *LocalOptimizer::Create(options, *plain, *device);
    REQUIRE(network->steps().takes_work());
    Fetching fetching(following.get(), network.get());
    for (uint64_t step = 0; step < 18; ++step) {
      CAPTURE(step);
      const Rows batch(model, kBatch - (step == 7 ? 3 : 0), 10 + static_cast<unsigned>(step));
      const bool fetches = step % 3 == 2 || step == 9;
      Update update;
      update.number = step + 1;
      update.rate = 1.0f / static_cast<float>(1 + step);
      following->Begin(update);
      GradientWork* const work = fetches ? static_cast<GradientWork*>(&fetching) : following.get();
      REQUIRE(network->steps().BeginStep(batch.batch(), {3, step, 1}, work).ok());
      const auto got = network->steps().EndStep(),
                 want = plain->steps().TrainStep(batch.batch(), {3, step, 1});
      REQUIRE(behind->Step(update).ok());
      REQUIRE((got.ok() && want.ok()));
      REQUIRE(got->loss == want->loss);
      if (!fetches) network->arrays().FetchParameters();
      plain->arrays().FetchParameters();
      REQUIRE(device->Finish().ok());
      REQUIRE(network->arrays().parameters() == plain->arrays().parameters());
    }
    // From the last layer to the first, each once.
    const int count =
        static_cast<int>(model.layers_size() == 0 ? 0 : plain->shape().parameters.size());
    REQUIRE(fetching.order.size() >= static_cast<size_t>(count));
    std::vector<int> first(fetching.order.begin(), fetching.order.begin() + count);
    CHECK(first.back() <= 1);
    std::sort(first.begin(), first.end());
    for (int i = 0; i < count; ++i) CHECK(first[i] == i);
  }
}

TEST_CASE("gradients come to the host only where they are asked for", "[device]") {
  const auto device = Device();
  const v1::Model model = ModelOf("6 linear:8 relu linear:4 softmax");
  Network::Options options;
  options.batch_max = kBatch;
  CHECK(Make(model, options, *device)->arrays().gradient(0).empty());
  options.fetches_gradients = true;
  CHECK(Make(model, options, *device)->arrays().gradient(0).size() == 48);
}

}  // namespace tessera
