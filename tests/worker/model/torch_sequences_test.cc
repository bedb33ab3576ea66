// One step of models of tokens against PyTorch's, from torch_sequences.py.
#include "tests/worker/model/torch_sequences.h"

#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/common/config/job_text.h"
#include "tests/worker/model/model_fixture.h"
#include "worker/model/training_pass.h"

namespace tessera {
namespace {

constexpr int64_t kRows = 3;

double Wave(double phase, double step, int64_t i) {
  return std::sin(phase + step * static_cast<double>(i));
}

v1::Model ModelOfText(const std::string& text) {
  return Good(absl::StrCat(
                  "name: tokens\n"
                  "data: {format: text, train: {features: a}, test: {features: b}}\n"
                  "model: ",
                  text,
                  "\ntrain: {batch_size: 3, epochs: 1, optimizer: {sgd: {learning_rate: 1}}}\n"
                  "method: {data_parallel: {}}\n"
                  "cluster: {servers: 1, workers: 1}\n"))
      .model();
}

void SetParameters(Network* network) {
  for (size_t p = 0; p < network->shape().parameters.size(); ++p) {
    const ParameterSpec& spec = network->shape().parameters[p];
    const auto columns = static_cast<double>(spec.columns);
    const absl::Span<float> values = network->arrays().parameter(static_cast<int>(p));
    for (size_t i = 0; i < values.size(); ++i) {
      const double wave = Wave(1 + 1.3 * static_cast<double>(p), 0.7, static_cast<int64_t>(i));
      values[i] = static_cast<float>((spec.columns > 1 ? 0 : 1) + wave / std::sqrt(columns + 3));
    }
  }
  network->arrays().SendParameters();
}

void CheckGradients(const TorchSequences& wanted, const Network& network) {
  REQUIRE(network.shape().parameters.size() == wanted.gradients.size());
  for (size_t p = 0; p < wanted.gradients.size(); ++p) {
    const auto& [name, numbers] = wanted.gradients[p];
    CAPTURE(name);
    CHECK(network.shape().parameters[p].name == name);
    const absl::Span<const float> got = network.arrays().gradient(static_cast<int>(p));
    const double norm = numbers[0];
    double squares = 0;
    for (const float value : got) squares += double{value} * value;
    CHECK(std::fabs(std::sqrt(squares) - norm) <= 1e-3 * norm);
    for (size_t k = 0; k + 1 < numbers.size(); ++k) {
      double product = 0;
      for (size_t i = 0; i < got.size(); ++i) {
        const auto at = static_cast<double>(k);
        product += got[i] * Wave(at, 0.3 + 0.5 * at, static_cast<int64_t>(i));
      }
      CHECK(std::fabs(product - numbers[k + 1]) <= 1e-3 * norm);
    }
  }
}

struct Tokens {
  Tokens(const ModelShape& shape, int64_t rows) : rows(rows) {
    const int64_t count = rows * shape.places();
    for (int64_t i = 0; i < count; ++i) {
      inputs.push_back(static_cast<float>((3 * i + i * i / 5) % shape.vocabulary));
      labels.push_back(static_cast<int32_t>((7 * i + 2) % shape.vocabulary));
    }
  }
  // `count` rows from `first` on, as a piece of all.
  Batch piece(int64_t first, int64_t count) const {
    const int64_t places = static_cast<int64_t>(inputs.size()) / rows;
    Batch batch;
    batch.rows = count;
    batch.first_row = first;
    batch.minibatch_rows = rows;
    batch.inputs = inputs.data() + first * places;
    batch.labels = labels.data() + first * places;
    return batch;
  }

  int64_t rows;
  std::vector<float> inputs;
  std::vector<int32_t> labels;
};

}  // namespace

TEST_CASE("a step of embeddings, attention and tied outputs is PyTorch's", "[torch][sequences]") {
  const int threads = GENERATE(1, 2);
  for (const TorchSequences& wanted : kTorchSequences) {
    CAPTURE(wanted.name, threads);
    const v1::Model model = ModelOfText(wanted.model);
    const std::unique_ptr<Backend> backend = Cpu(threads);
    const std::unique_ptr<Network> network = NetworkOf(model, kRows, *backend);
    SetParameters(network.get());
    const Tokens tokens(network->shape(), kRows);
    const Batch batch = tokens.piece(0, kRows);

    const absl::StatusOr<Batch> staged = network->input().Take(batch);
    REQUIRE(staged.ok());
    TrainingPass& pass = network->pass();
    const StepForm form = pass.Begin(*staged, {}, 0);
    pass.Forward(form);
    REQUIRE(backend->Finish().ok());
    double size = 0;
    for (const double output : wanted.outputs) size = std::max(size, std::fabs(output));
    REQUIRE(static_cast<int64_t>(wanted.outputs.size()) ==
            kRows * network->shape().places() * network->shape().outputs());
    for (size_t i = 0; i < wanted.outputs.size(); ++i) {
      CAPTURE(i);
      REQUIRE(std::fabs(pass.output()[i] - wanted.outputs[i]) <= 1e-4 * size);
    }
    pass.Backward(form, nullptr);
    REQUIRE(backend->Finish().ok());

    const absl::StatusOr<LossAndCount> step = network->steps().TrainStep(batch, {});
    REQUIRE(step.ok());
    REQUIRE(backend->Finish().ok());
    CHECK(step->loss == Approx(wanted.loss).epsilon(1e-4));
    CHECK(step->rows == kRows * network->shape().places());
    CheckGradients(wanted, *network);

    // In pieces of rows, too.
    for (const auto& [first, count] : {std::pair<int64_t, int64_t>{0, 1}, {1, 2}}) {
      REQUIRE(network->steps().BeginStep(tokens.piece(first, count), {}).ok());
      if (first == 0) REQUIRE(network->steps().EndPiece().ok());
    }
    const absl::StatusOr<LossAndCount> pieces = network->steps().EndStep();
    REQUIRE(pieces.ok());
    REQUIRE(backend->Finish().ok());
    CHECK(pieces->loss == Approx(wanted.loss).epsilon(1e-4));
    CheckGradients(wanted, *network);

    const absl::StatusOr<Scores> scores = network->evaluation().Score(batch, {});
    REQUIRE(scores.ok());
    CHECK(scores->rows == step->rows);
    CHECK(scores->loss_sum / static_cast<double>(scores->rows) ==
          Approx(wanted.loss).epsilon(1e-4));
  }
}

TEST_CASE("a token that is none of the vocabulary is refused with its place", "[sequences]") {
  const v1::Model model = ModelOfText(kTorchSequences.front().model);
  const std::unique_ptr<Backend> backend = Cpu();
  const std::unique_ptr<Network> network = NetworkOf(model, kRows, *backend);
  for (const float token : {-1.0f, 11.0f, 1.5f, std::nanf("")}) {
    Tokens tokens(network->shape(), kRows);
    tokens.inputs[2 * 9 + 4] = token;
    const absl::Status status = network->steps().TrainStep(tokens.piece(0, kRows), {}).status();
    CHECK(status.code() == absl::StatusCode::kInvalidArgument);
    CHECK(std::string(status.message()).find("token 4 of row 2") != std::string::npos);
  }
  Tokens tokens(network->shape(), kRows);
  tokens.labels[2 * 9 + 4] = 11;
  CHECK_FALSE(network->steps().TrainStep(tokens.piece(0, kRows), {}).ok());
}

}  // namespace tessera
