// A small language for models and batches in tests.
#ifndef TESSERA_TESTS_WORKER_MODEL_MODEL_FIXTURE_H_
#define TESSERA_TESTS_WORKER_MODEL_MODEL_FIXTURE_H_

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "kernels/devices.h"
#include "tests/worker/model/reference_network.h"
#include "worker/model/example_source.h"
#include "worker/model/network.h"

namespace tessera {

// "3" or "3x2": height and width.
template <typename Extents>
void AddExtents(const std::string& text, Extents* extents) {
  for (const absl::string_view each : absl::StrSplit(text, 'x')) {
    extents->Add(std::stol(std::string(each)));
  }
}

// kernel:stride:padding from word `at` on, as far as it goes.
template <typename Keys>
void AddWindow(const std::vector<std::string>& parts, size_t at, Keys* keys) {
  if (parts.size() > at) AddExtents(parts[at], keys->mutable_kernel());
  if (parts.size() > at + 1) AddExtents(parts[at + 1], keys->mutable_stride());
  if (parts.size() > at + 2) AddExtents(parts[at + 2], keys->mutable_padding());
}

// "6 linear:8 norm relu drop:0.3 linear-:4 norm- softmax": inputs, layers, loss. A minus leaves out the bias, or scale
// and shift. "3 8 7 conv:16:3:1:1 max:2 avg linear:4 softmax": an image of 3 channels, convolutions with their
// channels, kernel, stride, padding, dilation and groups, pooling with its kernel, stride and padding. "lnorm gnorm:3
// lnorm- gnorm-:3 lrn:5:2:0.75:1": normalisation within a row, of so many groups, and that of responses with its size,
// alpha, beta and k. "tokens:7:5 embed:8 attn:2:0.3 tied softmax": tokens with their vocabulary and context, an
// embedding, heads with a dropout, and a tied layer with a bias. "gelu gelu:tanh tanh logistic silu leaky:0.1":
// functions of a value.
inline v1::Model ModelOf(const std::string& text) {
  v1::Model model;
  for (const absl::string_view word : absl::StrSplit(text, ' ')) {
    const std::vector<std::string> parts = absl::StrSplit(word, ':');
    const std::string& name = parts[0];
    if (name == "linear" || name == "linear-") {
      model.add_layers()->mutable_linear()->set_units(std::stol(parts.at(1)));
      model.mutable_layers()->rbegin()->mutable_linear()->set_bias(name == "linear");
    } else if (name == "norm" || name == "norm-") {
      model.add_layers()->mutable_batch_norm()->set_affine(name == "norm");
      model.mutable_layers()->rbegin()->mutable_batch_norm()->set_epsilon(1e-5);
    } else if (name == "conv" || name == "conv-") {
      v1::Conv2d* const conv = model.add_layers()->mutable_conv2d();
      conv->set_channels(std::stol(parts.at(1)));
      conv->set_bias(name == "conv");
      AddWindow(parts, 2, conv);
      if (parts.size() > 5) AddExtents(parts[5], conv->mutable_dilation());
      if (parts.size() > 6) conv->set_groups(std::stol(parts[6]));
    } else if (name == "lnorm" || name == "lnorm-") {
      model.add_layers()->mutable_layer_norm()->set_affine(name == "lnorm");
      model.mutable_layers()->rbegin()->mutable_layer_norm()->set_epsilon(1e-5);
    } else if (name == "gnorm" || name == "gnorm-") {
      v1::GroupNorm* const norm = model.add_layers()->mutable_group_norm();
      norm->set_groups(std::stol(parts.at(1)));
      norm->set_affine(name == "gnorm");
      norm->set_epsilon(1e-5);
    } else if (name == "lrn") {
      v1::LocalResponseNorm* const norm = model.add_layers()->mutable_local_response_norm();
      norm->set_size(std::stol(parts.at(1)));
      norm->set_alpha(std::stod(parts.at(2)));
      norm->set_beta(std::stod(parts.at(3)));
      norm->set_k(std::stod(parts.at(4)));
    } else if (name == "tokens") {
      model.mutable_tokens()->set_vocabulary(std::stol(parts.at(1)));
      model.mutable_tokens()->set_context(std::stol(parts.at(2)));
    } else if (name == "embed") {
      v1::Embedding* const embedding = model.add_layers()->mutable_embedding();
      embedding->set_units(std::stol(parts.at(1)));
      embedding->set_positions("learned");
      embedding->set_stddev(1);
    } else if (name == "attn") {
      v1::Attention* const attention = model.add_layers()->mutable_attention();
      attention->set_heads(std::stol(parts.at(1)));
      attention->set_dropout(std::stod(parts.at(2)));
      attention->set_causal(true);
      attention->set_bias(true);
    } else if (name == "tied") {
      model.add_layers()->mutable_linear()->set_tied(true);
      model.mutable_layers()->rbegin()->mutable_linear()->set_bias(true);
    } else if (name == "gelu") {
      const std::string approximate = parts.size() > 1 ? parts[1] : "none";
      model.add_layers()->mutable_gelu()->set_approximate(approximate);
    } else if (name == "tanh") {
      model.add_layers()->mutable_tanh();
    } else if (name == "logistic") {
      model.add_layers()->mutable_sigmoid();
    } else if (name == "silu") {
      model.add_layers()->mutable_silu();
    } else if (name == "leaky") {
      model.add_layers()->mutable_leaky_relu()->set_slope(std::stod(parts.at(1)));
    } else if (name == "max") {
      AddWindow(parts, 1, model.add_layers()->mutable_max_pool());
    } else if (name == "avg") {
      AddWindow(parts, 1, model.add_layers()->mutable_avg_pool());
    } else if (name == "relu") {
      model.add_layers()->mutable_relu();
    } else if (name == "drop") {
      model.add_layers()->mutable_dropout()->set_probability(std::stod(parts.at(1)));
    } else if (name == "squares") {
      model.set_loss("mean_squared_error");
    } else if (name == "smooth") {
      model.set_loss("softmax_cross_entropy");
      model.set_label_smoothing(std::stod(parts.at(1)));
    } else if (name == "softmax" || name == "sigmoid") {
      model.set_loss(name + "_cross_entropy");
    } else {
      model.add_input(std::stol(name));
    }
  }
  return model;
}

inline std::unique_ptr<Backend> Cpu(int threads = 1) {
  auto backend = CreateBackend("cpu", threads);
  REQUIRE(backend.ok());
  return std::move(*backend);
}

inline std::unique_ptr<Network> NetworkOf(const v1::Model& model, int64_t batch_max,
                                          Backend& backend, Precision precision = Precision::kF32) {
  auto network = Network::Create(model, {batch_max, precision}, backend);
  INFO(network.status());
  REQUIRE(network.ok());
  return std::move(*network);
}

// Random rows with labels, and targets where the model has sigmoids.
struct Rows {
  Rows(const v1::Model& model, int64_t rows, unsigned seed, float center = 0) : rows(rows) {
    const auto shape = ShapeOf(model);
    REQUIRE(shape.ok());
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    inputs.resize(rows * shape->inputs());
    for (float& x : inputs) x = center + normal(random);
    for (float& x : inputs) {
      if (shape->vocabulary > 0) x = static_cast<float>(random() % shape->vocabulary);
    }
    const bool sigmoid = model.loss() == "sigmoid_cross_entropy";
    const int64_t classes = sigmoid && shape->outputs() == 1 ? 2 : shape->outputs();
    for (int64_t r = 0; r < rows * shape->places(); ++r) {
      labels.push_back(static_cast<int32_t>(random() % classes));
    }
    for (int64_t i = 0; sigmoid && i < rows * shape->outputs(); ++i) {
      targets.push_back(random() % 3 == 0 ? 1.0f : 0.0f);
    }
    const bool numbers = model.loss() == "mean_squared_error" && shape->outputs() == 1;
    for (int64_t i = 0; numbers && i < rows; ++i) targets.push_back(3 * normal(random));
  }
  Batch batch() const {
    Batch batch;
    batch.rows = rows;
    batch.inputs = inputs.data();
    batch.labels = labels.data();
    batch.targets = targets.empty() ? nullptr : targets.data();
    return batch;
  }
  // At most `count` of them from `first` on, as a piece of all.
  Batch piece(int64_t first, int64_t count) const {
    Batch piece = batch();
    piece.rows = std::min(count, rows - first);
    piece.inputs += first * static_cast<int64_t>(inputs.size()) / rows;
    piece.labels += first * static_cast<int64_t>(labels.size()) / rows;
    if (piece.targets != nullptr) {
      piece.targets += first * static_cast<int64_t>(targets.size()) / rows;
    }
    piece.first_row = first;
    piece.minibatch_rows = rows;
    return piece;
  }

  int64_t rows;
  std::vector<float> inputs;
  std::vector<int32_t> labels;
  std::vector<float> targets;
};

// The rows of one batch, of so many dense inputs or sparse, as the sample of a calibration.
class BatchExamples final : public ExampleSource {
 public:
  BatchExamples(const Batch& batch, int64_t inputs) : batch_(batch), inputs_(inputs) {}
  int64_t count() const override { return batch_.rows; }
  Batch Inputs(int64_t begin, int64_t count) override {
    Batch part;
    part.rows = count;
    if (batch_.inputs != nullptr) part.inputs = batch_.inputs + begin * inputs_;
    part.sparse = batch_.sparse;
    if (part.sparse.begin != nullptr) part.sparse.begin += begin;
    asked += count;
    return part;
  }
  Batch Labelled(int64_t begin, int64_t count) override { return Inputs(begin, count); }

  int64_t asked = 0;  // rows, with repetitions

 private:
  const Batch batch_;
  const int64_t inputs_;
};

inline absl::StatusOr<std::vector<float>> Calibrated(Network& network, const Batch& sample) {
  BatchExamples examples(sample, network.shape().inputs());
  return network.evaluation().Calibrate(&examples);
}

// TrainStep in pieces of at most `piece_rows` rows.
inline absl::StatusOr<LossAndCount> TrainInPieces(Network& network, const Rows& data,
                                                  int64_t piece_rows, const StepKey& key) {
  for (int64_t first = 0;; first += piece_rows) {
    const absl::Status begun = network.steps().BeginStep(data.piece(first, piece_rows), key);
    if (!begun.ok()) return begun;
    if (first + piece_rows >= data.rows) return network.steps().EndStep();
    const auto ended = network.steps().EndPiece();
    if (!ended.ok()) return ended.status();
  }
}

// The same random parameters in both; scales and shifts too, so that none hides behind 1 and 0.
inline void SetRandom(Network& network, ReferenceNetwork* reference, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  for (size_t p = 0; p < network.shape().parameters.size(); ++p) {
    const ParameterSpec& spec = network.shape().parameters[p];
    const float spread = spec.is_vector ? 0.5f : 1.0f / std::sqrt(static_cast<float>(spec.columns));
    for (float& value : network.arrays().parameter(static_cast<int>(p))) {
      value = spread * normal(random) + spec.initial_constant;
    }
    if (reference == nullptr) continue;
    const absl::Span<const float> values = network.arrays().parameter(static_cast<int>(p));
    REQUIRE(reference->parameters.at(p).size() == values.size());
    reference->parameters[p].assign(values.begin(), values.end());
  }
}

inline double NormOf(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value * value;
  return std::sqrt(sum);
}

}  // namespace tessera

#endif  // TESSERA_TESTS_WORKER_MODEL_MODEL_FIXTURE_H_
