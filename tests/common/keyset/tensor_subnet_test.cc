// Subnets of jobs of tensors, whose groups say what is cut.
#include <algorithm>
#include <catch2/catch.hpp>
#include <string>
#include <utility>
#include <vector>

#include "common/keyset/mean_share.h"
#include "common/keyset/subnet.h"
#include "common/layout/parameters.h"
#include "common/layout/shard_map.h"

namespace tessera {
namespace {

using Dimensions = std::vector<std::pair<std::string, int64_t>>;

void AddTensor(const std::string& name, const std::vector<int64_t>& dims, v1::Model* model) {
  v1::Tensor& tensor = *model->mutable_tensor_layout()->add_tensors();
  tensor.set_name(name);
  for (const int64_t extent : dims) tensor.add_dims(extent);
}

void AddGroup(const std::string& name, const Dimensions& dimensions, v1::Model* model) {
  v1::TensorGroup& group = *model->add_groups();
  group.set_name(name);
  for (const auto& [tensor, dimension] : dimensions) {
    v1::TensorDimension& added = *group.add_dimensions();
    added.set_tensor(tensor);
    added.set_dimension(dimension);
  }
}

// A convolution of 8 channels, one of 6 that reads them, and a matrix whose hidden units are 5.
v1::Model Convolutions() {
  v1::Model model;
  AddTensor("conv1.bias", {8}, &model);
  AddTensor("conv1.weight", {8, 3, 3, 3}, &model);
  AddTensor("conv2.weight", {6, 8, 2, 3}, &model);
  AddTensor("fc.weight", {5, 7}, &model);
  AddTensor("scale", {}, &model);
  AddGroup("channels", {{"conv1.bias", 0}, {"conv1.weight", 0}, {"conv2.weight", 1}}, &model);
  AddGroup("hidden", {{"fc.weight", 0}}, &model);
  return model;
}

SubnetPlace PlaceOf(uint32_t site, uint32_t sites, uint64_t round = 3) {
  SubnetPlace place;
  place.seed = 11;
  place.round = round;
  place.site = site;
  place.shares.assign(sites, 1);
  return place;
}

}  // namespace

TEST_CASE("named dimensions are cut, all others are whole", "[subnet]") {
  const ModelShape shape = *ShapeOf(Convolutions());
  const NeuronGroups groups = GroupsOf(shape);
  CHECK(groups.outputs == 3);
  CHECK((groups.widths[1] == 8 && groups.widths[2] == 5));
  const Subnet subnet = SubnetOf(shape, groups, PlaceOf(1, 2));
  const std::vector<ParameterSpec>& cut = subnet.shape.parameters;
  CHECK(cut[0].rows == 4);
  CHECK((cut[1].rows == 4 && cut[1].columns == 27));
  CHECK((cut[2].rows == 6 && cut[2].columns == 4 * 6));
  CHECK(cut[2].columns_are == std::vector<int64_t>{4, 2, 3});
  CHECK((cut[3].rows == 3 && cut[3].columns == 7));
  CHECK(cut[4].rows == 1);
  CHECK(groups.IsShared(4));
  CHECK_FALSE(groups.IsShared(2));
  // A channel's columns are a block of the kernel's six places.
  std::vector<int32_t> columns;
  for (const int32_t unit : subnet.neurons[1]) {
    for (int32_t k = 0; k < 6; ++k) columns.push_back(unit * 6 + k);
  }
  CHECK(subnet.columns(2) == columns);
  CHECK(subnet.rows(1) == subnet.neurons[1]);
}

TEST_CASE("sites' parts of tensors are disjoint and cover what is cut", "[subnet]") {
  const ModelShape shape = *ShapeOf(Convolutions());
  for (const bool rolling : {false, true}) {
    const NeuronGroups groups = GroupsOf(shape, {false, rolling});
    for (uint32_t sites = 1; sites <= 5; ++sites) {
      for (uint64_t round = 1; round < 8; ++round) {
        for (size_t p = 0; p < 4; ++p) {
          const ParameterSpec& spec = shape.parameters[p];
          std::vector<int> owners(static_cast<size_t>(spec.size()), 0);
          for (uint32_t site = 0; site < sites; ++site) {
            const Subnet subnet = SubnetOf(shape, groups, PlaceOf(site, sites, round));
            const std::vector<int32_t> alone = {0};
            for (const int32_t row : subnet.rows(static_cast<int>(p))) {
              for (const int32_t column :
                   spec.is_vector ? alone : subnet.columns(static_cast<int>(p))) {
                ++owners[static_cast<size_t>(row * spec.columns + column)];
              }
            }
          }
          CHECK(std::all_of(owners.begin(), owners.end(), [](int n) { return n == 1; }));
        }
      }
    }
  }
}

TEST_CASE("the same network has the same parts by layers and by tensors", "[subnet]") {
  v1::Model of_layers;
  of_layers.add_input(20);
  of_layers.add_layers()->mutable_linear()->set_units(12);
  of_layers.add_layers()->mutable_relu();
  of_layers.add_layers()->mutable_linear()->set_units(9);
  of_layers.add_layers()->mutable_relu();
  of_layers.add_layers()->mutable_linear()->set_units(4);
  const ModelShape by_layers = *ShapeOf(of_layers);
  v1::Model of_tensors;
  AddTensor("layers.0.bias", {12}, &of_tensors);
  AddTensor("layers.0.weight", {12, 20}, &of_tensors);
  AddTensor("layers.2.bias", {9}, &of_tensors);
  AddTensor("layers.2.weight", {9, 12}, &of_tensors);
  AddTensor("layers.4.bias", {4}, &of_tensors);
  AddTensor("layers.4.weight", {4, 9}, &of_tensors);
  AddGroup("1", {{"layers.0.bias", 0}, {"layers.0.weight", 0}, {"layers.2.weight", 1}},
           &of_tensors);
  AddGroup("2", {{"layers.2.bias", 0}, {"layers.2.weight", 0}, {"layers.4.weight", 1}},
           &of_tensors);
  const ModelShape by_tensors = *ShapeOf(of_tensors);
  for (const ParameterSpec& spec : by_layers.parameters) {
    const auto same =
        std::find_if(by_tensors.parameters.begin(), by_tensors.parameters.end(),
                     [&](const ParameterSpec& each) { return each.name == spec.name; });
    REQUIRE(same != by_tensors.parameters.end());
    const int a = static_cast<int>(&spec - by_layers.parameters.data());
    const int b = static_cast<int>(same - by_tensors.parameters.begin());
    for (uint32_t site = 0; site < 3; ++site) {
      const Subnet one = SubnetOf(by_layers, GroupsOf(by_layers), PlaceOf(site, 3));
      const Subnet other = SubnetOf(by_tensors, GroupsOf(by_tensors), PlaceOf(site, 3));
      CHECK(one.rows(a) == other.rows(b));
      if (!spec.is_vector) CHECK(one.columns(a) == other.columns(b));
    }
  }
  // What evaluation makes of the values is the workers' own business.
  CHECK_FALSE(WeightsOfMeanShare(by_layers, GroupsOf(by_layers)).empty());
  CHECK(WeightsOfMeanShare(by_tensors, GroupsOf(by_tensors)).empty());
}

// The places in the whole tensor of the entries that a site has, in the order in which it has them.
std::vector<int64_t> EntriesOf(const ModelShape& whole, const Subnet& subnet, int parameter) {
  const ParameterSpec& spec = whole.parameters[static_cast<size_t>(parameter)];
  const std::vector<int32_t> alone = {0};
  std::vector<int64_t> entries;
  for (const int32_t row : subnet.rows(parameter)) {
    for (const int32_t column : spec.is_vector ? alone : subnet.columns(parameter)) {
      entries.push_back(row * spec.columns + column);
    }
  }
  return entries;
}

// Every site has the same entries of both models' tensors, which have the same names, in every round.
void CheckSameParts(const v1::Model& of_layers, const v1::Model& of_tensors) {
  const ModelShape by_layers = *ShapeOf(of_layers), by_tensors = *ShapeOf(of_tensors);
  const NeuronGroups groups = GroupsOf(by_layers, {/*channels=*/true});
  const NeuronGroups other_groups = GroupsOf(by_tensors);
  REQUIRE(groups.outputs == 2);
  REQUIRE(other_groups.outputs == 2);
  for (const ParameterSpec& spec : by_layers.parameters) {
    CAPTURE(spec.name);
    const auto same =
        std::find_if(by_tensors.parameters.begin(), by_tensors.parameters.end(),
                     [&](const ParameterSpec& each) { return each.name == spec.name; });
    REQUIRE(same != by_tensors.parameters.end());
    const int a = static_cast<int>(&spec - by_layers.parameters.data());
    const int b = static_cast<int>(same - by_tensors.parameters.begin());
    for (uint64_t round = 1; round < 4; ++round) {
      for (uint32_t site = 0; site < 3; ++site) {
        const SubnetPlace place = PlaceOf(site, 3, round);
        CHECK(EntriesOf(by_layers, SubnetOf(by_layers, groups, place), a) ==
              EntriesOf(by_tensors, SubnetOf(by_tensors, other_groups, place), b));
      }
    }
  }
}

TEST_CASE("channels behind a flatten are cut in tensors as in layers", "[subnet]") {
  v1::Model of_layers;
  for (const int64_t extent : {2, 5, 4}) of_layers.add_input(extent);
  v1::Conv2d* const conv = of_layers.add_layers()->mutable_conv2d();
  conv->set_channels(7);
  conv->add_kernel(3);
  conv->set_bias(true);
  of_layers.add_layers()->mutable_relu();
  of_layers.add_layers()->mutable_linear()->set_units(4);
  // What is left of an image of 5 x 4 behind a kernel of 3.
  constexpr int64_t kPlaces = 3 * 2;
  const std::vector<int64_t> flat = {4, 7 * kPlaces}, spread = {4, 7, 3, 2};
  for (const std::vector<int64_t>& dims : {flat, spread}) {
    v1::Model of_tensors;
    AddTensor("layers.0.bias", {7}, &of_tensors);
    AddTensor("layers.0.weight", {7, 2, 3, 3}, &of_tensors);
    AddTensor("layers.2.bias", {4}, &of_tensors);
    AddTensor("layers.2.weight", dims, &of_tensors);
    AddGroup("channels", {{"layers.2.weight", 1}, {"layers.0.bias", 0}, {"layers.0.weight", 0}},
             &of_tensors);
    CheckSameParts(of_layers, of_tensors);
    const ModelShape shape = *ShapeOf(of_tensors);
    const Subnet subnet = SubnetOf(shape, GroupsOf(shape), PlaceOf(0, 2));
    CHECK(subnet.neurons[1].size() == 3);
    CHECK(subnet.shape.parameters[3].columns == 3 * kPlaces);
  }
}

TEST_CASE("heads of attention are cut in tensors that have an extent for them", "[subnet]") {
  v1::Model of_layers;
  of_layers.mutable_tokens()->set_vocabulary(11);
  of_layers.mutable_tokens()->set_context(4);
  v1::Embedding* const embedding = of_layers.add_layers()->mutable_embedding();
  embedding->set_units(12);
  embedding->set_positions("learned");
  v1::Residual* const residual = of_layers.add_layers()->mutable_residual();
  v1::Attention* const attention = residual->add_layers()->mutable_attention();
  attention->set_heads(3);
  attention->set_bias(true);
  of_layers.add_layers()->mutable_linear()->set_units(11);
  v1::Model of_tensors;
  const ModelShape by_layers = *ShapeOf(of_layers);
  Dimensions heads;
  // Names ascend in the layout of tensors.
  std::vector<const ParameterSpec*> sorted;
  for (const ParameterSpec& spec : by_layers.parameters) sorted.push_back(&spec);
  std::sort(sorted.begin(), sorted.end(),
            [](const ParameterSpec* a, const ParameterSpec* b) { return a->name < b->name; });
  for (const ParameterSpec* const spec : sorted) {
    const auto is = [&](const char* last) { return spec->name.find(last) != std::string::npos; };
    if (is("in_proj_weight")) {
      AddTensor(spec->name, {3, 3, 4, 12}, &of_tensors);
    } else if (is("in_proj_bias")) {
      AddTensor(spec->name, {3, 3, 4}, &of_tensors);
    } else if (is("out_proj.weight")) {
      AddTensor(spec->name, {12, 3, 4}, &of_tensors);
    } else if (spec->is_vector) {
      AddTensor(spec->name, {spec->rows}, &of_tensors);
    } else {
      AddTensor(spec->name, {spec->rows, spec->columns}, &of_tensors);
    }
    if (is("in_proj") || is("out_proj.weight")) heads.push_back({spec->name, 1});
  }
  REQUIRE(heads.size() == 3);
  AddGroup("heads", heads, &of_tensors);
  CheckSameParts(of_layers, of_tensors);
}

TEST_CASE("a unit may have several rows, and several of what further extents go on", "[subnet]") {
  v1::Model model;
  AddTensor("gain", {5}, &model);
  AddTensor("pairs", {10, 3}, &model);
  AddTensor("reads", {2, 15, 2}, &model);
  AddGroup("units", {{"pairs", 0}, {"reads", 1}, {"gain", 0}}, &model);
  const ModelShape shape = *ShapeOf(model);
  const NeuronGroups groups = GroupsOf(shape);
  CHECK(groups.widths[1] == 5);
  const Subnet subnet = SubnetOf(shape, groups, PlaceOf(1, 2));
  const std::vector<int32_t>& units = subnet.neurons[1];
  REQUIRE(units.size() == 3);
  std::vector<int32_t> rows, columns;
  for (const int32_t unit : units) {
    for (int32_t k = 0; k < 2; ++k) rows.push_back(2 * unit + k);
    for (int32_t k = 0; k < 6; ++k) columns.push_back(6 * unit + k);
  }
  CHECK(subnet.rows(0) == units);
  CHECK(subnet.rows(1) == rows);
  CHECK(subnet.columns(2) == columns);
  CHECK(subnet.shape.parameters[1].rows == 6);
  CHECK(subnet.shape.parameters[2].columns_are == std::vector<int64_t>{9, 2});
}

TEST_CASE("one group may index the rows and the columns of a matrix", "[subnet]") {
  v1::Model model;
  AddTensor("recurrent", {6, 6}, &model);
  AddGroup("state", {{"recurrent", 0}, {"recurrent", 1}}, &model);
  const ModelShape shape = *ShapeOf(model);
  const Subnet subnet = SubnetOf(shape, GroupsOf(shape), PlaceOf(0, 2));
  CHECK(subnet.shape.parameters[0].rows == 3);
  CHECK(subnet.rows(0) == subnet.columns(0));
}

TEST_CASE("a model whose groups are wrong has no shape", "[subnet]") {
  v1::Model model = Convolutions();
  model.mutable_groups(1)->mutable_dimensions(0)->set_tensor("fc.weights");
  const absl::Status status = ShapeOf(model).status();
  CHECK(absl::IsInvalidArgument(status));
  CHECK(status.message() ==
        "model.groups.hidden: got [fc.weights, 0], want a tensor of model.tensors");
}

}  // namespace tessera
