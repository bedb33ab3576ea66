// Models of tokens: the shapes, names and initial values of embeddings, attention and tied outputs.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <set>
#include <string>
#include <vector>

#include "common/layout/normal.h"
#include "common/layout/parameters.h"

namespace tessera {
namespace {

v1::Model Tokens(int64_t vocabulary, int64_t context) {
  v1::Model model;
  model.mutable_tokens()->set_vocabulary(vocabulary);
  model.mutable_tokens()->set_context(context);
  return model;
}

v1::Embedding& AddEmbedding(int64_t units, v1::Model* model) {
  v1::Embedding& embedding = *model->add_layers()->mutable_embedding();
  embedding.set_units(units);
  embedding.set_positions("learned");
  embedding.set_stddev(0.5);
  return embedding;
}

v1::Linear& AddLinear(int64_t units, v1::Model* model) {
  v1::Linear& linear = *model->add_layers()->mutable_linear();
  linear.set_units(units);
  return linear;
}

std::string Refusal(const v1::Model& model) {
  const absl::StatusOr<ModelShape> shape = ShapeOf(model);
  CHECK_FALSE(shape.ok());
  CHECK(shape.status().code() == absl::StatusCode::kInvalidArgument);
  return std::string(shape.status().message());
}

}  // namespace

TEST_CASE("a model of tokens has PyTorch's parameters", "[layout][sequences]") {
  v1::Model model = Tokens(7, 5);
  AddEmbedding(6, &model);
  v1::Attention& attention = *model.add_layers()->mutable_attention();
  attention.set_heads(2);
  attention.set_bias(true);
  model.add_layers()->mutable_layer_norm()->set_affine(true);
  v1::Linear& last = AddLinear(0, &model);
  last.set_tied(true);
  last.set_bias(true);
  const absl::StatusOr<ModelShape> shape = ShapeOf(model);
  REQUIRE(shape.ok());
  CHECK(shape->inputs() == 5);
  CHECK(shape->places() == 5);
  CHECK(shape->outputs() == 7);
  // An attention layer is the product in front, the heads and the product behind.
  CHECK(shape->widths == std::vector<int64_t>{5, 30, 90, 30, 30, 30, 35});
  std::string words;
  for (const ParameterSpec& p : shape->parameters) {
    words += p.name + "=" + std::to_string(p.rows) + "x" + std::to_string(p.columns) +
             (p.is_vector ? "v " : "m ");
  }
  CHECK(words ==
        "layers.0.weight=7x6m layers.0.positions=5x6m layers.1.in_proj_weight=18x6m "
        "layers.1.in_proj_bias=18x1v layers.1.out_proj.weight=6x6m layers.1.out_proj.bias=6x1v "
        "layers.2.weight=6x1v layers.2.bias=6x1v layers.3.bias=7x1v ");
  const std::vector<ParameterSpec>& specs = shape->parameters;
  CHECK(specs[0].initial_stddev == 0.5f);
  CHECK(specs[1].initial_stddev == 0.5f);
  CHECK(specs[2].initial_bound == Approx(std::sqrt(6.0 / 24)));
  CHECK(specs[3].initial_bound == 0);
  CHECK(specs[4].initial_bound == Approx(std::sqrt(1.0 / 6)));
  CHECK(specs[5].initial_bound == 0);
  for (size_t i = 0; i < specs.size(); ++i) CHECK(specs[i].is_factor == (i == 2 || i == 4));
  CHECK(shape->layers.back().tied_to == 0);
  CHECK(shape->layers[1].unit_times == 3);
  CHECK(shape->layers[1].unit_each == 3);
  CHECK(shape->layers[2].unit_each == 3);
}

TEST_CASE("a head may be as wide as the job says", "[layout][sequences]") {
  v1::Model model = Tokens(7, 5);
  AddEmbedding(6, &model).set_positions("none");
  v1::Attention& attention = *model.add_layers()->mutable_attention();
  attention.set_heads(4);
  attention.set_head_size(2);
  AddLinear(7, &model);
  const absl::StatusOr<ModelShape> shape = ShapeOf(model);
  REQUIRE(shape.ok());
  CHECK(shape->parameters[1].rows == 24);
  CHECK(shape->parameters[2].rows == 6);
  CHECK(shape->parameters[2].columns == 8);
  attention.set_head_size(0);
  CHECK(Refusal(model).find("model.layers[1]: heads is 4 with 6 units in front") == 0);
}

TEST_CASE("what is no model of tokens is refused by name", "[layout][sequences]") {
  v1::Model model = Tokens(7, 5);
  AddLinear(7, &model);
  CHECK(Refusal(model).find("model.layers[0]: reads tokens") == 0);
  model.clear_layers();
  AddEmbedding(4, &model);
  AddLinear(6, &model);
  CHECK(Refusal(model).find("the last layer makes 6 scores in each place, want 7") !=
        std::string::npos);
  model.mutable_layers(1)->mutable_linear()->set_units(7);
  REQUIRE(ShapeOf(model).ok());
  AddEmbedding(4, &model);
  CHECK(Refusal(model).find("model.layers[2]: is an embedding") == 0);
  model.mutable_layers()->RemoveLast();
  model.add_layers()->mutable_conv2d();
  CHECK(Refusal(model).find("model.layers[2]: conv2d reads images") == 0);
  model.mutable_layers()->RemoveLast();
  v1::Linear& tied = AddLinear(7, &model);
  tied.set_tied(true);
  CHECK(Refusal(model).find("makes 7 units of 7, want 7 of 4") != std::string::npos);

  v1::Model features;
  features.add_input(5);
  features.add_layers()->mutable_attention()->set_heads(1);
  CHECK(Refusal(features).find("model.layers[0]: reads a sequence of tokens") == 0);
  features.clear_layers();
  AddEmbedding(4, &features);
  CHECK(Refusal(features).find("model.layers[0]: reads a sequence of tokens") == 0);
  features.clear_layers();
  AddLinear(0, &features);
  CHECK(Refusal(features).find("units is vocabulary") != std::string::npos);
  features.clear_layers();
  AddLinear(3, &features).set_tied(true);
  CHECK(Refusal(features).find("there is no embedding") != std::string::npos);
}

TEST_CASE("initial values of embeddings are normal and the same in any part", "[layout]") {
  ParameterSpec spec{"weight", 200, 33};
  spec.initial_stddev = 0.25f;
  std::vector<float> all(static_cast<size_t>(spec.size()));
  FillInitialRows(spec, 3, 17, 0, spec.rows, all.data());
  std::vector<float> part(33 * 5);
  FillInitialRows(spec, 3, 17, 50, 55, part.data());
  CHECK(std::equal(part.begin(), part.end(), all.begin() + 50 * 33));
  double sum = 0, squares = 0;
  int64_t within = 0;
  for (const float value : all) {
    sum += value;
    squares += double{value} * value;
    within += std::fabs(value) < 0.25f ? 1 : 0;
  }
  const auto count = static_cast<double>(all.size());
  CHECK(std::fabs(sum / count) < 0.01);
  CHECK(std::sqrt(squares / count) == Approx(0.25).epsilon(0.03));
  CHECK(static_cast<double>(within) / count == Approx(0.6827).epsilon(0.03));
  CHECK(std::set<float>(all.begin(), all.end()).size() > 6500);
}

TEST_CASE("quantiles are those of the normal distribution", "[layout]") {
  const auto of = [](double p) { return NormalOf(static_cast<uint32_t>(p * 4294967296.0)); };
  CHECK(of(0.5) == Approx(0).margin(1e-8));
  CHECK(of(0.975) == Approx(1.959963985).epsilon(1e-7));
  CHECK(of(0.01) == Approx(-2.326347874).epsilon(1e-7));
  CHECK(of(0.0001) == Approx(-3.719016485).epsilon(1e-6));
  // The least and the largest, which mirror each other as all do.
  CHECK(NormalOf(0) == Approx(-6.3379).epsilon(1e-4));
  for (const uint32_t bits : {0u, 1u, 12345u, 0x7fffffffu, 0x06000000u, 0x07000000u}) {
    CHECK(NormalOf(bits) == -NormalOf(~bits));
  }
}

}  // namespace tessera
