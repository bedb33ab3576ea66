#include "common/layout/parameters.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <string>
#include <vector>

#include "common/base/philox.h"

namespace tessera {
namespace {

v1::Model Input(std::vector<int64_t> extents) {
  v1::Model model;
  for (const int64_t extent : extents) model.add_input(extent);
  return model;
}

void AddLinear(v1::Model& model, int64_t units, bool bias) {
  v1::Linear& linear = *model.add_layers()->mutable_linear();
  linear.set_units(units);
  linear.set_bias(bias);
}

TEST_CASE("a shape lists parameters by layer with their widths", "[layout][parameters]") {
  v1::Model model = Input({1, 28, 28});
  AddLinear(model, 64, false);
  model.add_layers()->mutable_batch_norm()->set_affine(true);
  model.add_layers()->mutable_relu();
  AddLinear(model, 10, true);
  model.add_layers()->mutable_batch_norm()->set_affine(false);
  const absl::StatusOr<ModelShape> shape = ShapeOf(model);
  REQUIRE(shape.ok());
  CHECK(shape->widths == std::vector<int64_t>{784, 64, 64, 64, 10, 10});
  CHECK(shape->inputs() == 784);
  CHECK(shape->outputs() == 10);
  std::string words;
  int64_t size = 0;
  for (const ParameterSpec& p : shape->parameters) {
    words += p.name + "=" + std::to_string(p.rows) + "x" + std::to_string(p.columns) +
             (p.is_vector ? "v" : "m") + std::to_string(p.layer) + " ";
    size += p.size();
  }
  CHECK(words ==
        "layers.0.weight=64x784m0 layers.1.weight=64x1v1 layers.1.bias=64x1v1 "
        "layers.3.weight=10x64m3 layers.3.bias=10x1v3 ");
  CHECK(shape->size == size);
  CHECK(shape->parameters[1].initial_constant == 1.0f);
  CHECK(shape->parameters[2].initial_constant == 0.0f);
  CHECK(shape->parameters[1].initial_bound == 0.0f);
}

v1::Conv2d& AddConvolution(v1::Model& model, int64_t channels, std::vector<int64_t> kernel) {
  v1::Conv2d& conv = *model.add_layers()->mutable_conv2d();
  conv.set_channels(channels);
  for (const int64_t extent : kernel) conv.add_kernel(extent);
  return conv;
}

TEST_CASE("convolutions and pooling make images of images", "[layout][parameters][images]") {
  v1::Model model = Input({3, 11, 8});
  v1::Conv2d& first = AddConvolution(model, 16, {3, 2});
  first.set_bias(true);
  first.add_stride(2);
  first.add_padding(1);
  first.add_padding(0);
  model.add_layers()->mutable_batch_norm()->set_affine(true);
  v1::Pool& pool = *model.add_layers()->mutable_max_pool();
  pool.add_kernel(2);  // Its stride, too.
  AddConvolution(model, 5, {1});
  model.add_layers()->mutable_avg_pool();  // Of all there is.
  AddLinear(model, 4, false);
  const absl::StatusOr<ModelShape> shape = ShapeOf(model);
  REQUIRE(shape.ok());
  const std::vector<Image> images = {{3, 11, 8}, {16, 6, 4}, {16, 6, 4}, {16, 3, 2},
                                     {5, 3, 2},  {5, 1, 1},  {4, 1, 1}};
  CHECK(shape->images == images);
  CHECK(shape->widths == std::vector<int64_t>{264, 384, 384, 96, 30, 5, 4});
  const ParameterSpec& weight = shape->parameters[0];
  CHECK(weight.name == "layers.0.weight");
  CHECK(weight.rows == 16);
  CHECK(weight.columns == 3 * 3 * 2);
  CHECK(weight.columns_are == std::vector<int64_t>{3, 3, 2});
  CHECK(weight.initial_bound == Approx(1 / std::sqrt(18.0)));
  CHECK(shape->parameters[1].rows == 16);  // Its bias, then the norm's.
  CHECK(shape->parameters[2].rows == 16);
  CHECK(shape->parameters[3].rows == 16);
  CHECK(shape->parameters[4].columns == 16);
  CHECK(shape->parameters.back().columns == 5);
  CHECK(shape->parameters.back().columns_are.empty());
}

TEST_CASE("without convolutions and pooling an image is its values",
          "[layout][parameters][images]") {
  v1::Model model = Input({3, 4, 5});
  model.add_layers()->mutable_batch_norm()->set_affine(true);
  AddLinear(model, 2, false);
  model.add_layers()->mutable_relu();
  const absl::StatusOr<ModelShape> shape = ShapeOf(model);
  REQUIRE(shape.ok());
  CHECK(shape->images == std::vector<Image>{{60, 1, 1}, {60, 1, 1}, {2, 1, 1}, {2, 1, 1}});
  CHECK(shape->parameters[0].rows == 60);
}

TEST_CASE("a convolution's groups and gaps are in its weight and in its image",
          "[layout][parameters][images]") {
  v1::Model model = Input({6, 11, 9});
  v1::Conv2d& conv = AddConvolution(model, 4, {3, 2});
  conv.set_groups(2);
  conv.add_dilation(3);
  conv.add_dilation(4);
  conv.add_padding(6);  // As far as a window still looks at the image.
  conv.add_padding(4);
  const absl::StatusOr<ModelShape> shape = ShapeOf(model);
  REQUIRE(shape.ok());
  CHECK(shape->images.back() == Image{4, 11 + 12 - 6, 9 + 8 - 4});
  const ParameterSpec& weight = shape->parameters[0];
  CHECK(weight.columns_are == std::vector<int64_t>{3, 3, 2});
  CHECK(weight.columns == 18);
  CHECK(weight.initial_bound == Approx(1 / std::sqrt(18.0)));  // As PyTorch counts what comes in.
  CHECK(weight.is_factor);
  const auto message = [&] { return std::string(ShapeOf(model).status().message()); };
  conv.set_padding(0, 7);
  CHECK(message() ==
        "model.layers[0]: padding is 7 x 4, want at most 6 x 4 with a kernel of 3 x 2, 7 x 5 with "
        "its dilation");
  conv.clear_padding();
  conv.set_dilation(0, 6);
  CHECK(message() ==
        "model.layers[0]: kernel is 3 x 2, 13 x 5 with its dilation, want at most 11 x 9, which is "
        "the image before it with its padding");
  conv.clear_dilation();
  conv.set_groups(4);
  CHECK(message() ==
        "model.layers[0]: groups is 4 with 6 channels in front and 4 behind, want a divisor of "
        "both");
}

TEST_CASE("norms of a row have parameters of the shapes that PyTorch's have",
          "[layout][parameters][images]") {
  v1::Model model = Input({4, 5, 3});
  AddConvolution(model, 6, {2});
  model.add_layers()->mutable_layer_norm()->set_affine(true);
  v1::GroupNorm& groups = *model.add_layers()->mutable_group_norm();
  groups.set_affine(true);
  groups.set_groups(3);
  AddLinear(model, 7, false);
  model.add_layers()->mutable_layer_norm()->set_affine(true);
  model.add_layers()->mutable_layer_norm();
  const absl::StatusOr<ModelShape> shape = ShapeOf(model);
  REQUIRE(shape.ok());
  const std::vector<ParameterSpec>& specs = shape->parameters;
  REQUIRE(specs.size() == 8);  // Two of the convolution, the norms' and the linear layer's.
  for (const size_t i : {1, 2}) {
    CHECK(specs[i].rows == 6);
    CHECK(specs[i].columns == 4 * 2);
    CHECK(specs[i].columns_are == std::vector<int64_t>{4, 2});
    CHECK_FALSE(specs[i].is_vector);
    CHECK_FALSE(specs[i].is_factor);
    CHECK(specs[i].initial_bound == 0);
    CHECK(specs[i].initial_constant == (i == 1 ? 1 : 0));
  }
  CHECK((specs[3].rows == 6 && specs[3].is_vector && specs[3].initial_constant == 1));
  CHECK((specs[6].rows == 7 && specs[6].is_vector && specs[6].name == "layers.4.weight"));
  groups.set_groups(4);
  CHECK(ShapeOf(model).status().message() ==
        "model.layers[2]: groups is 4 with 6 channels, want a divisor of them");
}

TEST_CASE("a convolution and nothing else is a model", "[layout][parameters][images]") {
  v1::Model model = Input({1, 4, 4});
  AddConvolution(model, 10, {4});
  const absl::StatusOr<ModelShape> shape = ShapeOf(model);
  REQUIRE(shape.ok());
  CHECK(shape->outputs() == 10);
}

TEST_CASE("layers that images do not fit are refused, with what is wanted",
          "[layout][parameters][images]") {
  const auto message = [](const v1::Model& model) {
    const absl::Status status = ShapeOf(model).status();
    CHECK(status.code() == absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  v1::Model model = Input({64});
  AddConvolution(model, 8, {3});
  CHECK(message(model) ==
        "model.input: got 1 numbers, want three, [channels, height, width]: convolutions, pooling "
        "and local_response_norm read images");
  model = Input({1, 8, 8});
  AddLinear(model, 5, false);
  AddConvolution(model, 8, {1});
  CHECK(message(model) ==
        "model.layers[1]: conv2d reads images, and layers.0, which is linear, makes none; want it "
        "in front of that");
  model = Input({1, 8, 6});
  AddConvolution(model, 8, {3, 7});
  CHECK(message(model) ==
        "model.layers[0]: kernel is 3 x 7, want at most 8 x 6, which is the image before it with "
        "its padding");
  model = Input({1, 8, 6});
  AddConvolution(model, 8, {3}).add_padding(3);
  CHECK(message(model) ==
        "model.layers[0]: padding is 3 x 3, want at most 2 x 2 with a kernel of 3 x 3");
  model = Input({1, 8, 6});
  model.add_layers()->mutable_max_pool()->add_kernel(3);
  model.mutable_layers(0)->mutable_max_pool()->add_padding(2);
  CHECK(message(model) ==
        "model.layers[0]: padding is 2 x 2, want at most 1 x 1 with a kernel of 3 x 3");
  model = Input({1, 4096, 4096});
  AddConvolution(model, 2, {1});
  CHECK(message(model) ==
        "model.layers[0]: 2 channels of 4096 x 4096, want at most 16777216 values");
  model = Input({int64_t{1} << 20, 4, 4});
  AddConvolution(model, 65536, {5}).add_padding(1);
  CHECK(message(model) ==
        "model.layers[0]: kernel is 5 x 5 on 1048576 channels, want at most 16777216 values that "
        "one output is computed from");
  for (const int64_t bad : {int64_t{0}, int64_t{-3}, INT64_MIN}) {
    model = Input({1, 8, 8});
    AddConvolution(model, bad, {3});
    message(model);
    model = Input({1, 8, 8});
    AddConvolution(model, 2, {3, bad});
    message(model);
    model = Input({1, 8, 8});
    AddConvolution(model, 2, {3}).add_stride(bad);
    message(model);
  }
  // What is large must not wrap around.
  for (const int64_t large : {INT64_MAX, INT64_MAX / 2, int64_t{1} << 32}) {
    model = Input({1, 8, 8});
    AddConvolution(model, large, {3});
    message(model);
    model = Input({1, 8, 8});
    AddConvolution(model, 2, {large});
    message(model);
    model = Input({1, 8, 8});
    AddConvolution(model, 2, {3}).add_padding(large - 1);
    message(model);
    model = Input({1, 8, 8});
    AddConvolution(model, 2, {large}).add_padding(large - 1);
    message(model);
    model = Input({1, 8, 8});
    AddConvolution(model, 2, {3}).add_stride(large);
    message(model);
  }
}

TEST_CASE("a model without a linear layer is refused", "[layout][parameters]") {
  v1::Model model = Input({4});
  model.add_layers()->mutable_relu();
  CHECK(ShapeOf(model).status().code() == absl::StatusCode::kInvalidArgument);
  CHECK(ShapeOf(v1::Model()).status().code() == absl::StatusCode::kInvalidArgument);
}

TEST_CASE("extents below one and sizes that overflow are refused", "[layout][parameters]") {
  for (const int64_t extent : {int64_t{0}, int64_t{-5}, INT64_MAX, (int64_t{1} << 40) + 1}) {
    v1::Model model = Input({extent});
    AddLinear(model, 1, false);
    CAPTURE(extent);
    CHECK(ShapeOf(model).status().code() == absl::StatusCode::kInvalidArgument);
    model = Input({2});
    AddLinear(model, extent, false);
    CHECK(ShapeOf(model).status().code() == absl::StatusCode::kInvalidArgument);
  }
  // Each factor is fine, the product is not.
  v1::Model model = Input({1 << 30, 1 << 30});
  AddLinear(model, 1, false);
  CHECK(ShapeOf(model).status().code() == absl::StatusCode::kInvalidArgument);
  // Each layer is fine, the sum is not.
  model = Input({1 << 20});
  AddLinear(model, 1 << 20, false);
  AddLinear(model, 1 << 20, false);
  CHECK(ShapeOf(model).status().code() == absl::StatusCode::kInvalidArgument);
}

TEST_CASE("initial values have PyTorch's bound and fill its range", "[layout][parameters]") {
  v1::Model model = Input({25});
  AddLinear(model, 400, true);
  const absl::StatusOr<ModelShape> shape = ShapeOf(model);
  REQUIRE(shape.ok());
  // torch.nn.Linear: weight and bias are uniform in +-1 / sqrt(inputs).
  CHECK(shape->parameters[0].initial_bound == 0.2f);
  CHECK(shape->parameters[1].initial_bound == 0.2f);
  std::vector<float> w(400 * 25);
  FillInitialRows(shape->parameters[0], 0, 7, 0, 400, w.data());
  double sum = 0;
  double squares = 0;
  float least = 1;
  float most = -1;
  for (const float x : w) {
    REQUIRE(x >= -0.2f);
    REQUIRE(x < 0.2f);
    sum += x;
    squares += double{x} * x;
    least = std::min(least, x);
    most = std::max(most, x);
  }
  // Of 10,000 uniform values the mean is within 5 sigma of 0, the variance near bound^2 / 3.
  CHECK(std::abs(sum / w.size()) < 5 * 0.2 / std::sqrt(3.0) / 100);
  CHECK(squares / w.size() == Approx(0.04 / 3).epsilon(0.05));
  CHECK(least < -0.199f);
  CHECK(most > 0.199f);
}

TEST_CASE("initial values are the same whoever fills which rows", "[layout][parameters]") {
  // 7 columns: the last block of a row is not used up, and rows do not share it.
  const ParameterSpec spec{"w", 13, 7, false, 0, 1.0f, 0.0f};
  std::vector<float> whole(13 * 7);
  FillInitialRows(spec, 3, 99, 0, 13, whole.data());
  for (int64_t begin = 0; begin < 13; ++begin) {
    for (int64_t end = begin; end <= 13; ++end) {
      std::vector<float> rows((end - begin) * 7);
      FillInitialRows(spec, 3, 99, begin, end, rows.data());
      REQUIRE(rows == std::vector<float>(whole.begin() + begin * 7, whole.begin() + end * 7));
    }
  }
}

TEST_CASE("row r column c is documented arithmetic on one philox word", "[layout][parameters]") {
  const ParameterSpec spec{"w", 5, 6, false, 0, 0.5f, 0.0f};
  std::vector<float> w(30);
  FillInitialRows(spec, 2, 1234567890123, 0, 5, w.data());
  const PhiloxBlock block = Philox(1234567890123, Stream::kInitialValues, 2, 4 * 2 + 5 / 4);
  CHECK(w[4 * 6 + 5] == 0.5f * (2 * UnitFloat(block[1]) - 1));
}

TEST_CASE("parameters and seeds do not share initial values", "[layout][parameters]") {
  const ParameterSpec spec{"w", 4, 4, false, 0, 1.0f, 0.0f};
  std::vector<float> a(16), b(16), c(16);
  FillInitialRows(spec, 0, 1, 0, 4, a.data());
  FillInitialRows(spec, 1, 1, 0, 4, b.data());
  FillInitialRows(spec, 0, 2, 0, 4, c.data());
  CHECK(a != b);
  CHECK(a != c);
}

TEST_CASE("a bound of zero fills the constant", "[layout][parameters]") {
  const ParameterSpec spec{"scale", 3, 1, true, 0, 0.0f, 1.0f};
  std::vector<float> w(2, -1);
  FillInitialRows(spec, 0, 1, 1, 3, w.data());
  CHECK(w == std::vector<float>{1, 1});
}

}  // namespace
}  // namespace tessera
