#include "worker/model/network.h"

#include "tests/worker/model/model_fixture.h"

namespace tessera {
namespace {

const std::vector<std::string>& Models() {
  static const std::vector<std::string> models = {
      "5 linear:4 softmax",
      "5 linear-:1 softmax",
      "17 linear-:33 norm relu linear-:9 norm- softmax",
      "20 linear:40 norm relu linear:30 norm relu linear:7 softmax",
      "20 linear-:40 norm relu linear-:30 norm relu linear-:7 norm- softmax",
      "12 norm linear:8 softmax",
      "12 norm- relu linear:8 softmax",
      "12 relu linear:8 norm softmax",
      "12 relu norm relu relu linear:8 softmax",
      "30 drop:0.2 linear:20 relu drop:0.5 linear:6 softmax",
      "30 drop:0.2 relu linear:20 norm relu drop:0.5 linear:10 drop:0.1 norm relu linear:6 softmax",
      "30 drop:0.2 norm relu linear:20 linear:7 relu softmax",
      "9 linear:300 norm relu linear:1 sigmoid",
      "9 linear:30 norm relu linear:70 sigmoid",
      "1 8 8 conv:16:3:1:1 relu max:2 conv:32:3:1:1 relu max:2 linear:10 softmax",
      "3 9 7 conv:5:3x2:2x1:1 relu linear:6 softmax",
      "6 9 7 conv:8:3:1:1 lnorm relu conv:12:3:1:2:2:2 gnorm:4 silu max:2 linear:10 softmax",
      "4 8 6 conv-:6:3:1:1:1:2 relu lrn:5:2:0.75:1 max:2 conv:6:1:1:0:1:6 gnorm-:3 linear:5 "
      "softmax",
      "3 7 6 lrn:4:1:0.5:2 conv:16:3:2:1 leaky:0.1 drop:0.3 lnorm- linear:20 tanh linear:4 softmax",
      "40 lnorm linear:50 gelu lnorm linear-:30 gelu:tanh gnorm:5 linear:7 softmax",
      "20 linear:30 relu drop:0.2 logistic linear:20 tanh logistic linear:9 leaky:0 silu softmax",
      "20 norm relu logistic linear:12 relu tanh leaky:0.3 relu linear:5 sigmoid",
      "3 9 7 conv-:17:3 norm relu drop:0.3 conv-:20:1 norm- relu avg softmax",
      "2 8 8 norm max:3:2:1 conv:8:5:1:2 relu avg:2:1:1 drop:0.2 linear:20 relu linear:4 softmax",
      "2 7 6 relu drop:0.2 conv:3:7x6 linear:5 norm relu linear:1 sigmoid",
      "4 6 6 conv:3:2:3 softmax",
      "5 1 9 conv:6:1x3 max sigmoid",
      "20 linear:40 norm relu linear:12 smooth:0.2",
      "20 linear:40 norm relu linear:12 squares",
      "9 linear:30 relu linear:1 squares",
  };
  return models;
}

// Distance of the network's gradients from the reference's, over the reference's norm over all
// parameters.
double GradientError(const Network& network, const ReferenceNetwork& reference) {
  double difference = 0, norm = 0;
  for (size_t p = 0; p < reference.gradients.size(); ++p) {
    for (size_t i = 0; i < reference.gradients[p].size(); ++i) {
      const double want = reference.gradients[p][i];
      difference += std::pow(network.arrays().gradient(static_cast<int>(p))[i] - want, 2);
      norm += want * want;
    }
  }
  return std::sqrt(difference) / (std::sqrt(norm) + 1e-6);
}

}  // namespace

TEST_CASE("loss and gradients equal the f64 reference for every arrangement of layers",
          "[network]") {
  const std::string text = GENERATE(from_range(Models()));
  const int threads = GENERATE(1, 2);
  const v1::Model model = ModelOf(text);
  const auto backend = Cpu(threads);
  const auto network = NetworkOf(model, 33, *backend);
  ReferenceNetwork reference(model);
  SetRandom(*network, &reference, 3);
  // A large batch first, so that what it left behind would show in the smaller ones.
  for (const int64_t rows : {33, 5, 17, 33}) {
    CAPTURE(text, threads, rows);
    const Rows data(model, rows, 5 + static_cast<unsigned>(rows));
    const StepKey key{9, static_cast<uint64_t>(rows), 2};
    const auto got = network->steps().TrainStep(data.batch(), key);
    REQUIRE(got.ok());
    const double want = reference.TrainLoss(data.batch(), key, true);
    CHECK(got->loss == Approx(want).epsilon(1e-5).margin(1e-6));
    CHECK(got->rows == rows);
    CHECK(GradientError(*network, reference) < 3e-5);
  }
}

TEST_CASE("in bf16 the gradients equal those of a reference that rounds the same factors",
          "[network][bf16]") {
  const auto backend = Cpu();
  if (!backend->linear_bf16().ok()) return;
  const v1::Model model = ModelOf(
      GENERATE(as<std::string>(), "20 linear:40 relu linear:7 softmax",
               "64 linear-:96 norm relu linear-:48 norm relu linear-:7 norm- softmax",
               "9 linear:30 norm relu linear:70 sigmoid",
               "4 9 7 conv:16:3:1:1 lnorm gelu conv:8:3:1:2:2:4 gnorm:2 silu linear:7 softmax",
               "3 9 7 conv:16:3:1:1 relu max:2 conv-:20:3 norm relu linear:7 softmax"));
  const auto network = NetworkOf(model, 64, *backend, Precision::kBf16);
  ReferenceNetwork rounded(model, true), exact(model);
  SetRandom(*network, &rounded, 3);
  SetRandom(*network, &exact, 3);
  const Rows data(model, 64, 5);
  const auto got = network->steps().TrainStep(data.batch(), {});
  REQUIRE(got.ok());
  CHECK(got->loss == Approx(rounded.TrainLoss(data.batch(), {}, true)).epsilon(1e-3));
  // An f32 sum next to the middle of two bf16 values rounds apart by 2^-8 here and there.
  CHECK(GradientError(*network, rounded) < 1e-2);
  // And bf16 is what was computed: f32 would be closer than this to the exact gradient.
  exact.TrainLoss(data.batch(), {}, true);
  CHECK(GradientError(*network, exact) > 1e-4);
}

TEST_CASE("a minibatch in pieces has its own loss, count and gradients, whatever the pieces",
          "[network][pieces]") {
  const std::string text = GENERATE(from_range(Models()));
  // Batch norm is over a piece. Norms within a row are not.
  if (text.find(" norm") != std::string::npos) return;
  const int64_t piece = GENERATE(1, 4, 16, 32);  // The last one is smaller, but for 1.
  const v1::Model model = ModelOf(text);
  const auto backend = Cpu();
  const auto network = NetworkOf(model, piece, *backend), whole = NetworkOf(model, 33, *backend);
  ReferenceNetwork reference(model);
  SetRandom(*network, &reference, 3);
  SetRandom(*whole, nullptr, 3);
  for (const uint64_t step : {1, 2, 3}) {
    CAPTURE(text, piece, step);
    const Rows data(model, 33, 5 + static_cast<unsigned>(step));
    const StepKey key{9, step, 2};
    const auto got = TrainInPieces(*network, data, piece, key);
    const auto at_once = whole->steps().TrainStep(data.batch(), key);
    REQUIRE((got.ok() && at_once.ok()));
    const double want = reference.TrainLoss(data.batch(), key, true);
    CHECK(got->loss == Approx(want).epsilon(1e-5).margin(1e-6));
    CHECK(got->correct == at_once->correct);
    CHECK(got->rows == data.rows);
    CHECK(GradientError(*network, reference) < 3e-5);
  }
}

TEST_CASE("in pieces bf16's gradients are those of a reference that rounds the same factors",
          "[network][pieces][bf16]") {
  const auto backend = Cpu();
  if (!backend->linear_bf16().ok()) return;
  const v1::Model model = ModelOf("20 linear:40 relu linear:7 softmax");
  const auto network = NetworkOf(model, 20, *backend, Precision::kBf16);
  ReferenceNetwork rounded(model, true);
  SetRandom(*network, &rounded, 3);
  const Rows data(model, 64, 5);
  const auto got = TrainInPieces(*network, data, 20, {});
  REQUIRE(got.ok());
  CHECK(got->loss == Approx(rounded.TrainLoss(data.batch(), {}, true)).epsilon(1e-3));
  CHECK(GradientError(*network, rounded) < 1e-2);
}

TEST_CASE("batch norm takes its statistics over each piece", "[network][pieces]") {
  const v1::Model model = ModelOf("20 linear:40 norm relu linear-:30 norm- relu linear:7 softmax");
  const auto backend = Cpu();
  const auto network = NetworkOf(model, 12, *backend);
  ReferenceNetwork reference(model);
  SetRandom(*network, &reference, 3);
  const Rows data(model, 33, 5);
  const auto got = TrainInPieces(*network, data, 12, {});
  REQUIRE(got.ok());
  // Of minibatches of their own, by their shares of the rows.
  double loss = 0;
  std::vector<std::vector<double>> sums;
  for (int64_t first = 0; first < data.rows; first += 12) {
    Batch piece = data.piece(first, 12);
    piece.first_row = 0;
    piece.minibatch_rows = 0;
    const double share = static_cast<double>(piece.rows) / static_cast<double>(data.rows);
    loss += share * reference.TrainLoss(piece, {}, true);
    sums.resize(reference.gradients.size());
    for (size_t p = 0; p < sums.size(); ++p) {
      sums[p].resize(reference.gradients[p].size());
      for (size_t i = 0; i < sums[p].size(); ++i) {
        sums[p][i] += share * static_cast<double>(reference.gradients[p][i]);
      }
    }
  }
  for (size_t p = 0; p < sums.size(); ++p) {
    reference.gradients[p].assign(sums[p].begin(), sums[p].end());
  }
  CHECK(got->loss == Approx(loss).epsilon(1e-5));
  CHECK(GradientError(*network, reference) < 3e-5);
}

TEST_CASE("one piece of all rows is the minibatch, bit for bit", "[network][pieces]") {
  const v1::Model model = ModelOf("30 drop:0.2 linear:20 norm relu linear:6 softmax");
  const auto backend = Cpu();
  const auto network = NetworkOf(model, 33, *backend), whole = NetworkOf(model, 33, *backend);
  SetRandom(*network, nullptr, 3);
  SetRandom(*whole, nullptr, 3);
  const Rows data(model, 33, 5);
  const auto got = TrainInPieces(*network, data, 33, {1, 2, 3}),
             want = whole->steps().TrainStep(data.batch(), {1, 2, 3});
  REQUIRE((got.ok() && want.ok()));
  CHECK(got->loss == want->loss);
  CHECK(network->arrays().gradients() == whole->arrays().gradients());
}

TEST_CASE("the number right of a training batch is counted", "[network]") {
  const v1::Model model = ModelOf("2 linear-:2 softmax");
  const auto backend = Cpu();
  const auto network = NetworkOf(model, 4, *backend);
  const std::vector<float> identity = {1, 0, 0, 1};
  std::copy(identity.begin(), identity.end(), network->arrays().parameter(0).begin());
  const std::vector<float> inputs = {3, 1, 1, 3, 5, 0, 0, 5};
  const std::vector<int32_t> labels = {0, 0, 0, 1};
  Batch batch;
  batch.rows = 4;
  batch.inputs = inputs.data();
  batch.labels = labels.data();
  const auto got = network->steps().TrainStep(batch, {});
  REQUIRE(got.ok());
  CHECK(got->correct == 3);
}

TEST_CASE("batch norm over a single row trains without NaN", "[network]") {
  const v1::Model model = ModelOf("6 linear:5 norm relu linear-:3 norm- softmax");
  const auto backend = Cpu();
  const auto network = NetworkOf(model, 1, *backend);
  SetRandom(*network, nullptr, 1);
  const Rows data(model, 1, 2);
  const auto got = network->steps().TrainStep(data.batch(), {});
  REQUIRE(got.ok());
  CHECK(std::isfinite(got->loss));
  for (const float g : network->arrays().gradients()) REQUIRE(std::isfinite(g));
}

TEST_CASE("a training step leaves the parameters alone and pads with zeros", "[network]") {
  const v1::Model model = ModelOf("7 linear:5 norm relu linear:3 softmax");
  const auto backend = Cpu();
  const auto network = NetworkOf(model, 8, *backend);
  SetRandom(*network, nullptr, 1);
  const std::vector<float> before(network->arrays().parameters().begin(),
                                  network->arrays().parameters().end());
  const Rows data(model, 8, 2);
  REQUIRE(network->steps().TrainStep(data.batch(), {}).ok());
  CHECK(std::vector<float>(network->arrays().parameters().begin(),
                           network->arrays().parameters().end()) == before);
  size_t outside = 0;
  for (size_t i = 0; i < network->arrays().gradients().size(); ++i) {
    bool inside = false;
    for (size_t p = 0; p < network->shape().parameters.size(); ++p) {
      const float* begin = network->arrays().gradient(static_cast<int>(p)).data();
      const float* here = network->arrays().gradients().data() + i;
      inside = inside || (here >= begin && here < begin + network->shape().parameters[p].size());
    }
    outside += inside ? 0 : 1;
    if (!inside) CHECK(network->arrays().gradients()[i] == 0);
  }
  CHECK(outside + network->shape().size == network->arrays().gradients().size());
  for (size_t p = 0; p < network->shape().parameters.size(); ++p) {
    CHECK(reinterpret_cast<uintptr_t>(network->arrays().parameter(static_cast<int>(p)).data()) %
              64 ==
          0);
  }
}

TEST_CASE("training repeats bit by bit", "[network][determinism]") {
  const int threads = GENERATE(1, 2);
  const Precision precision = GENERATE(Precision::kF32, Precision::kBf16);
  const v1::Model model = ModelOf(GENERATE(
      as<std::string>(),
      "100 linear:150 norm relu drop:0.3 linear:70 norm relu linear-:9 norm- softmax",
      "4 9 9 conv:16:3:1:1:1:2 lnorm gelu lrn:5:1:0.75:1 conv:8:3 gnorm:2 tanh linear:9 softmax",
      "3 12 12 conv:16:3:1:1 norm relu max:3:2:1 conv:32:3 relu avg:2 linear:9 softmax"));
  std::vector<float> first;
  for (int run = 0; run < 2; ++run) {
    const auto backend = Cpu(threads);
    if (precision == Precision::kBf16 && !backend->linear_bf16().ok()) return;
    const auto network = NetworkOf(model, 64, *backend, precision);
    network->arrays().SetInitialValues(11);
    for (uint64_t step = 0; step < 20; ++step) {
      const Rows data(model, 64, static_cast<unsigned>(step));
      REQUIRE(network->steps().TrainStep(data.batch(), {1, step, 0}).ok());
      backend->vector().Axpy(network->arrays().parameters().size(), -0.1f,
                             network->arrays().gradients().data(),
                             network->arrays().parameters().data());
    }
    const std::vector<float> last(network->arrays().parameters().begin(),
                                  network->arrays().parameters().end());
    if (run == 0) first = last;
    CHECK(last == first);
  }
}

TEST_CASE(
    "dropout differs from step to step, rank to rank and seed to seed, and repeats for the same",
    "[network]") {
  const v1::Model model = ModelOf("40 linear:60 relu drop:0.5 linear:5 softmax");
  const auto backend = Cpu();
  const auto network = NetworkOf(model, 16, *backend);
  SetRandom(*network, nullptr, 1);
  const Rows data(model, 16, 2);
  const auto loss = [&](const StepKey& key) {
    return network->steps().TrainStep(data.batch(), key)->loss;
  };
  const double base = loss({1, 1, 1});
  CHECK(loss({1, 1, 1}) == base);
  CHECK(loss({2, 1, 1}) != base);
  CHECK(loss({1, 2, 1}) != base);
  CHECK(loss({1, 1, 2}) != base);
}

TEST_CASE("initial values are those that servers fill in", "[network]") {
  const v1::Model model = ModelOf("7 linear:5 norm relu linear:3 softmax");
  const auto backend = Cpu();
  const auto network = NetworkOf(model, 8, *backend);
  network->arrays().SetInitialValues(42);
  for (size_t p = 0; p < network->shape().parameters.size(); ++p) {
    const ParameterSpec& spec = network->shape().parameters[p];
    std::vector<float> want(spec.size());
    FillInitialRows(spec, static_cast<int>(p), 42, 0, spec.rows, want.data());
    const absl::Span<const float> got = network->arrays().parameter(static_cast<int>(p));
    CHECK(std::vector<float>(got.begin(), got.end()) == want);
  }
}

TEST_CASE("a bad batch is refused, with what is wanted", "[network]") {
  const v1::Model model = ModelOf("3 linear:4 softmax");
  const auto backend = Cpu();
  const auto network = NetworkOf(model, 8, *backend);
  const Rows data(model, 8, 2);
  const auto refused = [&](const Batch& batch, const std::string& message) {
    for (const absl::Status& status : {network->steps().TrainStep(batch, {}).status(),
                                       network->evaluation().Score(batch, {}).status()}) {
      CHECK(status.code() == absl::StatusCode::kInvalidArgument);
      CHECK(std::string(status.message()) == message);
    }
  };
  Batch batch = data.batch();
  batch.rows = 0;
  refused(batch, "batch: rows is 0, want between 1 and 8");
  batch.rows = 9;
  refused(batch, "batch: rows is 9, want between 1 and 8");
  batch = data.batch();
  batch.inputs = nullptr;
  refused(batch, "batch: inputs is null, want values");
  batch = data.batch();
  batch.labels = nullptr;
  refused(batch, "batch: labels is null, want labels for softmax_cross_entropy");
  batch.targets = data.inputs.data();
  refused(batch, "batch: labels is null, want labels for softmax_cross_entropy");
  for (const int32_t label : {-1, 4}) {
    std::vector<int32_t> labels = data.labels;
    labels[5] = label;
    batch = data.batch();
    batch.labels = labels.data();
    refused(batch, absl::StrCat("batch: label of row 5 is ", label, ", want between 0 and 3"));
  }
  CHECK(network->steps().TrainStep(data.batch(), {}).ok());
}

TEST_CASE("a model that cannot be built is refused", "[network]") {
  const auto backend = Cpu();
  const v1::Model good = ModelOf("3 linear:4 softmax");
  const auto code = [&](const v1::Model& model, int64_t batch_max) {
    return Network::Create(model, {batch_max, Precision::kF32}, *backend).status().code();
  };
  CHECK(code(good, 1) == absl::StatusCode::kOk);
  CHECK(code(good, 0) == absl::StatusCode::kInvalidArgument);
  CHECK(code(ModelOf("3 relu softmax"), 1) == absl::StatusCode::kInvalidArgument);
  CHECK(code(ModelOf("3 max:1 softmax"), 1) == absl::StatusCode::kInvalidArgument);
  v1::Model no_loss = good;
  no_loss.set_loss("hinge");
  CHECK(code(no_loss, 1) == absl::StatusCode::kInvalidArgument);
  v1::Model no_kind = good;
  no_kind.add_layers();
  CHECK(code(no_kind, 1) == absl::StatusCode::kInvalidArgument);
}

}  // namespace tessera
