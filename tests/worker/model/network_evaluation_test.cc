// Calibration and scores.
#include "tests/worker/model/model_fixture.h"

namespace tessera {
namespace {

struct Setup {
  Setup(const std::string& text, int64_t batch_max, Precision precision = Precision::kF32)
      : model(ModelOf(text)),
        backend(Cpu()),
        network(NetworkOf(model, batch_max, *backend, precision)),
        reference(model) {
    SetRandom(*network, &reference, 3);
  }
  std::vector<float> Calibrated(const Batch& sample) {
    const auto constants = tessera::Calibrated(*network, sample);
    REQUIRE(constants.ok());
    return *constants;
  }
  Scores Scored(const Batch& batch, const std::vector<float>& constants) {
    const auto scores = network->evaluation().Score(batch, constants);
    REQUIRE(scores.ok());
    return *scores;
  }

  const v1::Model model;
  const std::unique_ptr<Backend> backend;
  const std::unique_ptr<Network> network;
  ReferenceNetwork reference;
};

}  // namespace

TEST_CASE("constants are the statistics of the whole sample, layer by layer", "[calibration]") {
  const std::string text = GENERATE(
      as<std::string>(), "10 linear:20 norm relu linear-:8 norm- softmax",
      "10 norm relu linear:20 drop:0.5 norm linear:8 softmax",
      "10 lnorm linear:20 norm gelu lnorm drop:0.5 norm- linear:8 softmax",
      "4 8 6 conv:8:3:1:2:2:2 lnorm norm silu lrn:5:1:0.75:1 gnorm:4 norm- leaky:0.1 linear:8 "
      "softmax",
      "10 drop:0.3 norm- linear:8 norm relu linear:5 relu norm softmax",
      "10 linear-:30 norm relu linear-:30 norm relu linear-:8 norm- softmax",
      "3 8 6 conv:16:3:1:1 norm relu max:2 drop:0.3 conv-:20:3 norm relu linear:8 norm softmax",
      "3 8 6 norm- conv:5:3 avg:2:2:1 norm- linear:8 softmax",
      "2 8 6 max:2 norm conv:5:3x2 norm softmax");
  CAPTURE(text);
  Setup s(text, 16);
  const Rows sample(s.model, 203, 7, 4), test(s.model, 16, 8, 4);  // Far from mean 0.
  const std::vector<float> got = s.Calibrated(sample.batch());
  const Matrix logits = s.reference.CalibratedLogits(sample.batch(), test.batch());
  size_t at = 0;
  for (const ReferenceNetwork::Statistics& layer : s.reference.statistics) {
    for (const double mean : layer.mean) {
      REQUIRE(got.at(at++) == Approx(mean).epsilon(1e-5).margin(1e-5));
    }
    for (const double sigma : layer.sigma) REQUIRE(got.at(at++) == Approx(1 / sigma).epsilon(1e-5));
  }
  CHECK(at == got.size());
  const Scores scores = s.Scored(test.batch(), got);
  CHECK(scores.loss_sum / 16 ==
        Approx(s.reference.Loss(logits, test.batch(), nullptr)).epsilon(1e-5));
}

TEST_CASE("statistics of the rows themselves are the same bits whatever the pieces",
          "[calibration]") {
  const std::string text = GENERATE(as<std::string>(), "10 norm relu linear:8 softmax",
                                    "3 5 4 norm- conv:5:3 relu linear:8 softmax",
                                    "10 drop:0.5 relu norm linear:8 softmax");
  CAPTURE(text);
  Setup whole(text, 100);
  const Rows sample(whole.model, 100, 7, 4);
  const std::vector<float> want = whole.Calibrated(sample.batch());
  for (const int64_t rows : {1, 7, 33, 50, 99}) {
    CAPTURE(rows);
    CHECK(Setup(text, rows).Calibrated(sample.batch()) == want);
  }
}

TEST_CASE("behind products pieces of another size differ by their rounding alone",
          "[calibration]") {
  const std::string text = GENERATE(
      as<std::string>(), "10 linear:20 norm relu linear-:8 norm- softmax",
      "3 8 6 conv:16:3:1:1 norm relu max:2 drop:0.3 conv-:20:3 norm relu linear:8 norm softmax");
  CAPTURE(text);
  Setup whole(text, 100);
  const Rows sample(whole.model, 100, 7);
  const std::vector<float> want = whole.Calibrated(sample.batch());
  for (const int64_t rows : {1, 16, 60}) {
    CAPTURE(rows);
    const std::vector<float> got = Setup(text, rows).Calibrated(sample.batch());
    REQUIRE(got.size() == want.size());
    for (size_t i = 0; i < want.size(); ++i) {
      REQUIRE(got[i] == Approx(want[i]).epsilon(1e-5).margin(1e-6));
    }
  }
}

TEST_CASE("an empty sample is refused, and no batch norm needs none", "[calibration]") {
  Setup with("10 linear:20 norm softmax", 4), without("10 linear:20 relu softmax", 4);
  CHECK(Calibrated(*with.network, {}).status().code() == absl::StatusCode::kInvalidArgument);
  Batch null;
  null.rows = 3;
  CHECK(Calibrated(*with.network, null).status().code() == absl::StatusCode::kInvalidArgument);
  CHECK(without.Calibrated({}).empty());
}

TEST_CASE("predictions are the last layer's outputs, without labels", "[predict]") {
  const std::string text = GENERATE(as<std::string>(), "10 linear:20 norm relu linear:8 softmax",
                                    "10 linear:20 relu drop:0.5 linear:5 drop:0.5 softmax",
                                    "2 8 6 conv:5:3 relu linear:3 softmax");
  CAPTURE(text);
  Setup s(text, 16);
  const Rows sample(s.model, 50, 7), test(s.model, 9, 8);
  const std::vector<float> constants = s.Calibrated({sample.batch()});
  const Matrix logits = s.reference.CalibratedLogits(sample.batch(), test.batch());
  const int64_t outputs = s.network->shape().outputs();
  std::vector<float> scores(9 * outputs);
  const Batch inputs{9, test.inputs.data(), nullptr, nullptr};
  REQUIRE(s.network->evaluation().Predict(inputs, constants, absl::MakeSpan(scores)).ok());
  for (size_t i = 0; i < scores.size(); ++i) {
    REQUIRE(scores[i] == Approx(logits[i]).epsilon(1e-4).margin(1e-5));
  }
  // What is scored afterwards is not disturbed.
  CHECK(s.Scored(test.batch(), constants).rows == 9);
}

TEST_CASE("predictions want room for all of them, rows, and the network's constants", "[predict]") {
  Setup s("10 linear:20 norm linear:3 softmax", 4);
  const Rows test(s.model, 4, 1);
  std::vector<float> scores(12);
  const auto refusal = [&](int64_t rows, size_t constants, size_t room) {
    scores.resize(room);
    const Batch inputs{rows, test.inputs.data(), nullptr, nullptr};
    const absl::Status status = s.network->evaluation().Predict(
        inputs, std::vector<float>(constants), absl::MakeSpan(scores));
    return std::string(status.message());
  };
  CHECK(refusal(4, 40, 12) == "");
  CHECK(refusal(4, 39, 12) == "predict: constants are 39 values, want 40");
  CHECK(refusal(4, 40, 11) == "predict: room is for 11 scores, want 12, 3 for each row");
  CHECK(refusal(0, 40, 0) == "batch: rows is 0, want between 1 and 4");
}

TEST_CASE("constants of another number are refused", "[score]") {
  Setup s("10 linear:20 norm linear:3 softmax", 4);
  const Rows test(s.model, 4, 1);
  const auto refused = s.network->evaluation().Score(test.batch(), std::vector<float>(39));
  REQUIRE_FALSE(refused.ok());
  CHECK(refused.status().code() == absl::StatusCode::kInvalidArgument);
  CHECK(std::string(refused.status().message()) == "score: constants are 39 values, want 40");
}

TEST_CASE("scores add up over the parts of a test set, and training between them changes nothing",
          "[score]") {
  Setup s("10 linear:20 norm relu drop:0.5 linear-:8 norm- softmax", 64);
  const Rows test(s.model, 64, 8);
  const std::vector<float> constants = s.Calibrated(test.batch());
  const Scores whole = s.Scored(test.batch(), constants);
  Scores sum;
  for (int64_t begin = 0; begin < 64; begin += 24) {
    const int64_t rows = std::min<int64_t>(24, 64 - begin);
    const Scores part = s.Scored(
        {rows, test.inputs.data() + begin * 10, test.labels.data() + begin, nullptr}, constants);
    sum.loss_sum += part.loss_sum;
    sum.correct += part.correct;
    sum.rows += part.rows;
    for (int d = 0; d < 3; ++d) sum.precision_hits[d] += part.precision_hits[d];
    REQUIRE(s.network->steps().TrainStep(test.batch(), {}).ok());
  }
  CHECK(sum.rows == 64);
  CHECK(sum.correct == whole.correct);
  CHECK(sum.precision_hits == whole.precision_hits);
  CHECK(sum.loss_sum == Approx(whole.loss_sum).epsilon(1e-6));
}

TEST_CASE("scoring never writes the batch, whatever the first layers are", "[score]") {
  const std::string text =
      GENERATE(as<std::string>(), "10 drop:0.5 relu linear:3 softmax", "10 relu linear:3 softmax",
               "10 drop:0.5 norm linear:3 softmax", "10 norm- relu linear:3 softmax");
  CAPTURE(text);
  Setup s(text, 8);
  const Rows test(s.model, 8, 8);
  const std::vector<float> before = test.inputs;
  const std::vector<float> constants = s.Calibrated(test.batch());
  s.Scored(test.batch(), constants);
  CHECK(test.inputs == before);
  REQUIRE(s.network->steps().TrainStep(test.batch(), {}).ok());
  CHECK(test.inputs == before);
}

TEST_CASE("a bf16 network calibrates and scores the same bits as an f32 one", "[score][bf16]") {
  const std::string text = "10 linear:20 norm relu linear-:8 norm- softmax";
  if (!Cpu()->linear_bf16().ok()) return;
  Setup f32(text, 32), bf16(text, 32, Precision::kBf16);
  const Rows test(f32.model, 32, 8);
  const std::vector<float> constants = f32.Calibrated(test.batch());
  CHECK(bf16.Calibrated(test.batch()) == constants);
  CHECK(bf16.Scored(test.batch(), constants).loss_sum ==
        f32.Scored(test.batch(), constants).loss_sum);
}

TEST_CASE("accuracy and precision are counted by the kind of output", "[score]") {
  Setup softmax("6 linear-:6 softmax", 2), single("1 linear-:1 sigmoid", 4),
      multi("6 linear-:6 sigmoid", 2);
  for (Setup* s : {&softmax, &multi}) {
    for (int i = 0; i < 36; ++i) s->network->arrays().parameter(0)[i] = i % 7 == 0 ? 1.0f : 0.0f;
  }
  single.network->arrays().parameter(0)[0] = 1;
  const std::vector<float> logits = {6, 5, 4, 3, 2, 1, 1, 2, 3, 4, 5, 6};
  const std::vector<int32_t> labels = {0, 3};
  const Scores of_softmax = softmax.Scored({2, logits.data(), labels.data(), nullptr}, {});
  CHECK(of_softmax.correct == 1);
  CHECK(of_softmax.precision_hits == std::array<int64_t, 3>{1, 2, 2});

  const std::vector<float> targets = {0, 1, 1, 0, 0, 1, 1, 1, 1, 0, 0, 1};
  const Scores of_multi = multi.Scored({2, logits.data(), nullptr, targets.data()}, {});
  CHECK(of_multi.correct == 1);
  CHECK(of_multi.precision_hits == std::array<int64_t, 3>{1, 3, 5});
  CHECK(multi.Scored({2, logits.data(), labels.data(), nullptr}, {}).correct == 1);

  const std::vector<float> one = {2, -2, 3, -3};
  const std::vector<int32_t> sides = {1, 0, 0, 1};
  CHECK(single.Scored({4, one.data(), sides.data(), nullptr}, {}).correct == 2);
  const std::vector<int32_t> beyond = {1, 0, 2, 1};
  CHECK_FALSE(single.network->evaluation().Score({4, one.data(), beyond.data(), nullptr}, {}).ok());
}

}  // namespace tessera
