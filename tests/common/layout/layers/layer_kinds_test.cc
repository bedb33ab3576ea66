#include "common/layout/layers/layer_kinds.h"

#include <set>

#include "absl/strings/match.h"
#include "catch2/catch.hpp"

namespace tessera {
namespace {

// A layer of the kind with every key that it needs.
v1::Layer LayerOf(const LayerKind& kind) {
  v1::Layer layer;
  const auto* const field = v1::Layer::descriptor()->FindFieldByNumber(kind.kind_case);
  layer.GetReflection()->MutableMessage(&layer, field);
  if (layer.has_linear()) layer.mutable_linear()->set_units(5);
  if (layer.has_conv2d()) {
    layer.mutable_conv2d()->set_channels(5);
    layer.mutable_conv2d()->add_kernel(2);
  }
  if (layer.has_batch_norm()) layer.mutable_batch_norm()->set_affine(true);
  if (layer.has_layer_norm()) layer.mutable_layer_norm()->set_affine(true);
  if (layer.has_group_norm()) {
    layer.mutable_group_norm()->set_affine(true);
    layer.mutable_group_norm()->set_groups(3);
  }
  if (layer.has_embedding()) {
    layer.mutable_embedding()->set_units(5);
    layer.mutable_embedding()->set_stddev(1);
  }
  if (layer.has_attention()) layer.mutable_attention()->set_heads(2);
  if (layer.has_local_response_norm()) layer.mutable_local_response_norm()->set_size(5);
  return layer;
}

}  // namespace

TEST_CASE("every layer of the job language is in the table, once", "[layers]") {
  std::set<int> cases;
  for (const LayerKind& kind : LayerKinds()) CHECK(cases.insert(kind.kind_case).second);
  const auto* const kinds = v1::Layer::descriptor()->oneof_decl(0);
  // A repeat is no layer of its own: its copies are.
  CHECK(cases.insert(v1::Layer::kRepeat).second);
  CHECK(static_cast<int>(cases.size()) == kinds->field_count());
  for (int i = 0; i < kinds->field_count(); ++i) CHECK(cases.count(kinds->field(i)->number()) == 1);
}

TEST_CASE("a kind is found by its layer and has its name in the job file", "[layers]") {
  for (const LayerKind& kind : LayerKinds()) {
    const v1::Layer layer = LayerOf(kind);
    CHECK(FindLayerKind(layer) == &kind);
    CHECK(&LayerKindOf(layer) == &kind);
    CHECK(LayerNames().find(LayerName(layer)) != std::string::npos);
  }
  CHECK(FindLayerKind(v1::Layer()) == nullptr);
  CHECK(LayerName(v1::Layer()) == "no layer");
  CHECK(absl::StartsWith(LayerNames(), "linear, conv2d, max_pool, avg_pool, batch_norm, relu, "));
  CHECK(absl::EndsWith(LayerNames(), " or repeat"));
}

TEST_CASE("what the columns of a kind say of its layers holds of their shapes", "[layers]") {
  for (const LayerKind& kind : LayerKinds()) {
    const v1::Layer layer = LayerOf(kind);
    CAPTURE(LayerName(layer));
    const bool is_of_tokens = kind.reads == LayerReads::kSequence;
    const Image before = is_of_tokens ? Image{3, 4, 1, true} : Image{3, 4, 6};
    CHECK((kind.join != nullptr) == (kind.reads == LayerReads::kParts));
    CHECK((kind.join == nullptr) == (kind.shape != nullptr));
    if (kind.join != nullptr) continue;
    const absl::StatusOr<LayerShape> shape = kind.shape(layer, before, is_of_tokens ? 7 : 0);
    REQUIRE(shape.ok());
    CHECK(shape->map.from == before);
    const bool keeps_shape =
        kind.reads == LayerReads::kUnits || kind.reads == LayerReads::kUnitsTogether;
    if (keeps_shape) CHECK(shape->map.to == before);
    if (kind.reads == LayerReads::kUnits) CHECK_FALSE(kind.keeps_whole(layer));
    if (kind.reads == LayerReads::kUnitsTogether) CHECK(kind.keeps_whole(layer));
    if (kind.reads == LayerReads::kFeatures) CHECK(shape->map.to.positions() == 1);
    if (kind.learns) CHECK_FALSE(shape->parameters.empty());
    // sequence_test has what an embedding's parameters are.
    if (is_of_tokens) continue;
    const std::vector<std::string> names = {"weight", "bias"};
    REQUIRE(shape->parameters.size() <= names.size());
    for (size_t i = 0; i < shape->parameters.size(); ++i) {
      const ParameterSpec& spec = shape->parameters[i];
      CHECK(spec.name == names[i]);
      CHECK(spec.rows == shape->map.to.channels);
      CHECK(spec.is_factor == (i == 0 && kind.learns));
      // A layer norm has an entry for each value of an image.
      const bool is_of_values = layer.has_layer_norm();
      CHECK(spec.columns == (is_of_values     ? before.positions()
                             : spec.is_factor ? spec.columns
                                              : 1));
      CHECK(spec.is_vector == !(is_of_values || spec.is_factor));
    }
    CHECK((kind.set_units != nullptr) == kind.makes_units());
    if (!kind.makes_units()) continue;
    v1::Layer smaller = layer;
    kind.set_units(2, &smaller);
    CHECK(kind.units(layer) == shape->map.to.channels);
    CHECK(kind.units(smaller) == 2);
    CHECK(kind.shape(smaller, before, 0)->map.to.channels == 2);
  }
}

TEST_CASE("a model reads images, calibrates and reads sparse rows as its layers do", "[layers]") {
  v1::Model model;
  CHECK_FALSE(ReadsImages(model));
  CHECK_FALSE(ReadsSparse(model));
  model.add_layers()->mutable_relu();
  CHECK_FALSE(ReadsSparse(model));
  model.add_layers()->mutable_max_pool();
  CHECK(ReadsImages(model));
  CHECK_FALSE(Calibrates(model));
  model.add_layers()->mutable_batch_norm();
  CHECK(Calibrates(model));
  v1::Model flat;
  flat.add_layers()->mutable_linear();
  flat.add_layers()->mutable_conv2d();
  CHECK_FALSE(ReadsImages(flat));
  CHECK(ReadsSparse(flat));
}

}  // namespace tessera
