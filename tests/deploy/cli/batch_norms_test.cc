#include "deploy/cli/batch_norms.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

namespace tessera {
namespace {

TEST_CASE("a variance comes back from what evaluation multiplies by", "[batch_norms]") {
  const double epsilon = GENERATE(1e-5, 0.1, 1e-30);
  for (const double variance : {0.0, 1e-7, 0.5, 3.0, 1e6}) {
    const float inverse_sigma = InverseSigmaOf(variance, epsilon);
    if (!std::isfinite(inverse_sigma)) continue;
    const double found = VarianceOf(inverse_sigma, epsilon);
    CHECK(found >= 0);
    // What PyTorch makes of it is what evaluation multiplied by.
    CHECK(InverseSigmaOf(found, epsilon) == Approx(inverse_sigma).epsilon(1e-7));
    CHECK(found + epsilon == Approx(variance + epsilon).epsilon(2e-7));
  }
  CHECK(std::isnan(VarianceOf(std::numeric_limits<float>::quiet_NaN(), epsilon)));
}

TEST_CASE("batch norms are found by layer, those of images by channel", "[batch_norms]") {
  v1::Model model;
  for (const int64_t extent : {3, 8, 8}) model.add_input(extent);
  v1::Conv2d& convolution = *model.add_layers()->mutable_conv2d();
  convolution.set_channels(6);
  for (int i = 0; i < 2; ++i) {
    convolution.add_kernel(3);
    convolution.add_stride(1);
    convolution.add_padding(1);
  }
  model.add_layers()->mutable_batch_norm()->set_epsilon(0.5);
  model.add_layers()->mutable_relu();
  model.add_layers()->mutable_linear()->set_units(5);
  model.add_layers()->mutable_batch_norm()->set_epsilon(0.25);
  model.add_layers()->mutable_linear()->set_units(2);
  const auto norms = BatchNormsOf(model);
  INFO(norms.status().message());
  REQUIRE(norms.ok());
  REQUIRE(norms->size() == 2);
  CHECK((*norms)[0].name == "layers.1");
  CHECK((*norms)[0].channels == 6);
  CHECK((*norms)[0].epsilon == 0.5);
  CHECK((*norms)[1].name == "layers.4");
  CHECK((*norms)[1].channels == 5);
  CHECK(ConstantsOf(*norms) == 22);
  CHECK(BatchNormsOf(v1::Model())->empty());
}

}  // namespace
}  // namespace tessera
