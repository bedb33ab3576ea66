// The parameters of jobs of tensors.
#include "common/layout/tensor_layout.h"

#include <catch2/catch.hpp>

#include <chrono>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/layout/parameters.h"
#include "common/layout/shard_map.h"

namespace tessera {
namespace {

struct Named {
  std::string name;
  std::vector<int64_t> dims;
};

v1::TensorLayout LayoutOf(const std::vector<Named>& tensors) {
  v1::TensorLayout layout;
  for (const Named& each : tensors) {
    v1::Tensor& tensor = *layout.add_tensors();
    tensor.set_name(each.name);
    for (const int64_t extent : each.dims) tensor.add_dims(extent);
  }
  return layout;
}

v1::Model ModelOf(const std::vector<Named>& tensors) {
  v1::Model model;
  *model.mutable_tensor_layout() = LayoutOf(tensors);
  return model;
}

std::string ErrorOf(const std::vector<Named>& tensors) {
  const absl::StatusOr<ModelShape> shape = ShapeOf(ModelOf(tensors));
  REQUIRE_FALSE(shape.ok());
  CHECK(absl::IsInvalidArgument(shape.status()));
  return std::string(shape.status().message());
}

}  // namespace

TEST_CASE("tensors are rows of what their first extent counts", "[tensors]") {
  const absl::StatusOr<ModelShape> shape =
      ShapeOf(ModelOf({{"a", {}}, {"b", {5}}, {"c", {4, 3}}, {"d", {2, 3, 1, 7}}, {"e", {6, 1}}}));
  REQUIRE(shape.ok());
  std::string text;
  for (const ParameterSpec& p : shape->parameters) {
    absl::StrAppend(&text, p.name, " ", p.rows, "x", p.columns, p.is_vector ? " v" : " m",
                    p.is_scalar ? "s" : "", " ", p.columns_are.size(), " ", p.layer, "; ");
  }
  CHECK(text == "a 1x1 vs 0 -1; b 5x1 v 0 -1; c 4x3 m 0 -1; d 2x21 m 3 -1; e 6x1 m 0 -1; ");
  CHECK(shape->parameters[3].columns_are == std::vector<int64_t>{3, 1, 7});
  CHECK(shape->size == 1 + 5 + 12 + 42 + 6);
  CHECK((shape->layers.empty() && shape->widths.empty() && shape->images.empty()));
  CHECK((shape->inputs() == 0 && shape->outputs() == 0 && shape->places() == 1));
}

TEST_CASE("every entry of a job of tensors is on one server", "[tensors]") {
  const absl::StatusOr<ModelShape> shape = ShapeOf(ModelOf({{"a", {}}, {"b", {5}}, {"c", {2, 9}}}));
  REQUIRE(shape.ok());
  for (const int servers : {1, 2, 3, 7}) {
    int64_t entries = 0;
    for (int s = 0; s < servers; ++s) entries += SlicesOf(*shape, ShardId(s), servers).size;
    CHECK(entries == shape->size);
  }
}

TEST_CASE("a layout that is none is refused by the tensor's name", "[tensors]") {
  CHECK(ErrorOf({}) == "model.tensors: no tensor is known, want at least one");
  CHECK(ErrorOf({{"", {1}}}) == "model.tensors: a tensor's name has 0 bytes, want 1 to 1024");
  CHECK(ErrorOf({{"a", {1}}, {"a", {1}}}) ==
        "model.tensors: tensor \"a\" is behind \"a\", want each name once, in the order of their "
        "bytes");
  CHECK(ErrorOf({{"b", {1}}, {"a", {1}}}).find("tensor \"a\" is behind \"b\"") !=
        std::string::npos);
  const std::string extents = ", want extents of at least 1 and at most 2^40 entries";
  CHECK(ErrorOf({{"a", {2, 0}}}) == "model.tensors: tensor \"a\" is [2, 0]" + extents);
  CHECK(ErrorOf({{"a", {-1}}}) == "model.tensors: tensor \"a\" is [-1]" + extents);
  const int64_t large = int64_t{1} << 39;
  CHECK(ErrorOf({{"a", {large, 4}}}) ==
        absl::StrCat("model.tensors: tensor \"a\" is [", large, ", 4]", extents));
  CHECK(ErrorOf({{"a", {large, large, large}}}).find("tensor \"a\" is [") != std::string::npos);
  CHECK(ErrorOf({{"a", {large}}, {"b", {large}}, {"c", {1}}}) ==
        "model.tensors: more than 2^40 entries");
  CHECK(ErrorOf({{"a", std::vector<int64_t>(17, 1)}}) ==
        "model.tensors: tensor \"a\" has 17 extents, want at most 16");
  CHECK(ErrorOf({{std::string(1025, 'x'), {1}}}) ==
        "model.tensors: a tensor's name has 1025 bytes, want 1 to 1024");
}

TEST_CASE("layouts are told apart by names, shapes and values", "[tensors]") {
  const v1::TensorLayout layout = LayoutOf({{"a", {2}}, {"b", {3, 2}}});
  CHECK(DescribeLayout(layout).substr(0, 21) == "2 tensors, 8 entries,");
  CHECK(SumOf(layout, 7) == SumOf(layout, 7));
  CHECK(SumOf(layout, 7) != SumOf(layout, 8));
  for (const v1::TensorLayout& other :
       {LayoutOf({{"a", {2}}, {"c", {3, 2}}}), LayoutOf({{"a", {2}}, {"b", {2, 3}}}),
        LayoutOf({{"a", {2}}, {"b", {6}}}), LayoutOf({{"a", {2, 1}}, {"b", {3, 2}}}),
        LayoutOf({{"a", {2}}})}) {
    CHECK(DescribeLayout(other) != DescribeLayout(layout));
    CHECK(SumOf(other, 7) != SumOf(layout, 7));
  }
}

TEST_CASE("100,000 tensors are laid out in a moment", "[tensors][timed]") {
  std::vector<Named> tensors;
  for (int i = 0; i < 100000; ++i) {
    tensors.push_back({absl::StrFormat("layers.%06d.weight", i), {4, 2}});
  }
  const v1::Model model = ModelOf(tensors);
  const auto begin = std::chrono::steady_clock::now();
  const absl::StatusOr<ModelShape> shape = ShapeOf(model);
  REQUIRE(shape.ok());
  CHECK(SlicesOf(*shape, ShardId(1), 3).slices.size() == 100000);
  CHECK(LayoutHash(*shape, 3) != 0);
  CHECK(DescribeLayout(model.tensor_layout()).substr(0, 14) == "100000 tensors");
  // Anything that grew with the square would take minutes.
  CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(10));
}

}  // namespace tessera
