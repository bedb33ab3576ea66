#include "common/keyset/subnet.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <numeric>
#include <random>
#include <vector>

#include "common/base/philox.h"
#include "tests/common/keyset/fully_connected.h"

namespace tessera {
namespace {

struct Case {
  v1::Model model;
  ModelShape shape;
  NeuronGroups groups;

  explicit Case(const v1::Model& m) : model(m), shape(*ShapeOf(m)), groups(GroupsOf(shape)) {}
};

TEST_CASE("parts are disjoint and cover every hidden neuron", "[subnet]") {
  std::mt19937_64 random(1);
  for (int i = 0; i < 10000; ++i) {
    SubnetPlace place;
    place.seed = random();
    place.round = random() % 1000000;
    place.shares.assign(1 + random() % 9, 1);
    const bool equal = random() % 2 == 0;
    if (!equal) {
      for (uint32_t& share : place.shares) share = 1 + random() % 1000;
    }
    const int group = 1 + static_cast<int>(random() % 4);
    const int64_t width = 1 + static_cast<int64_t>(random() % 200);
    std::vector<int> owners(width, 0);
    size_t least = width, most = 0;
    for (place.site = 0; place.site < place.sites(); ++place.site) {
      const std::vector<int32_t> part = PartOf(place, group, width);
      REQUIRE(std::is_sorted(part.begin(), part.end()));
      for (const int32_t neuron : part) ++owners.at(neuron);
      least = std::min(least, part.size());
      most = std::max(most, part.size());
    }
    REQUIRE(std::all_of(owners.begin(), owners.end(), [](int n) { return n == 1; }));
    if (equal) REQUIRE(most - least <= 1);
  }
}

// As the documentation says it, with a whole sort.
std::vector<int32_t> Reference(const SubnetPlace& place, int group, int64_t width) {
  std::vector<int32_t> order(width);
  std::iota(order.begin(), order.end(), 0);
  const auto key = [&](int32_t neuron) {
    const PhiloxBlock b =
        Philox(place.seed, Stream::kSubnet, place.round + (uint64_t(group) << 40), neuron);
    return uint64_t{b[1]} << 32 | b[0];
  };
  std::sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    return std::make_pair(key(a), a) < std::make_pair(key(b), b);
  });
  double before = 0, all = 0;
  for (uint32_t s = 0; s < place.sites(); ++s) {
    all += place.shares[s];
    if (s < place.site) before += place.shares[s];
  }
  const int64_t begin = width * static_cast<int64_t>(before) / static_cast<int64_t>(all);
  const int64_t end =
      width * static_cast<int64_t>(before + place.shares[place.site]) / static_cast<int64_t>(all);
  std::vector<int32_t> part(order.begin() + begin, order.begin() + end);
  std::sort(part.begin(), part.end());
  return part;
}

TEST_CASE("a part is a run of the neurons sorted by their keys", "[subnet]") {
  for (uint64_t round = 0; round < 50; ++round) {
    for (uint32_t site = 0; site < 3; ++site) {
      const SubnetPlace place{9, round, site, {3, 1, 2}};
      CHECK(PartOf(place, 2, 101) == Reference(place, 2, 101));
    }
  }
}

TEST_CASE("rounds, groups and seeds are cut differently", "[subnet]") {
  const SubnetPlace place{7, 3, 0, {1, 1}};
  const std::vector<int32_t> part = PartOf(place, 1, 64);
  CHECK(part != PartOf({7, 4, 0, {1, 1}}, 1, 64));
  CHECK(part != PartOf({8, 3, 0, {1, 1}}, 1, 64));
  CHECK(part != PartOf(place, 2, 64));
  CHECK(part == PartOf(place, 1, 64));
}

TEST_CASE("over many rounds every neuron is in a part equally often", "[subnet]") {
  std::vector<int> times(20, 0);
  for (uint64_t round = 0; round < 4000; ++round) {
    for (const int32_t neuron : PartOf({1, round, 1, {1, 1, 1, 1}}, 1, 20)) ++times[neuron];
  }
  for (const int n : times) CHECK(n == Approx(1000).epsilon(0.12));
}

TEST_CASE("inputs and outputs are whole, and what they alone index is shared", "[subnet]") {
  const Case c(FullyConnected({5, 8, 6, 3}, /*bias=*/true, /*norm=*/true));
  const Subnet subnet = SubnetOf(c.shape, c.groups, {1, 1, 0, {1, 1}});
  CHECK(subnet.neurons[0].size() == 5);
  CHECK(subnet.neurons[1].size() == 4);
  CHECK(subnet.neurons[2].size() == 3);
  CHECK(subnet.neurons[3].size() == 3);
  CHECK(subnet.shape.size == (4 * 5 + 3 * 4) + (3 * 4 + 3 * 3) + (3 * 3 + 3 * 3));
  for (size_t i = 0; i < c.shape.parameters.size(); ++i) {
    const ParameterSpec& full = c.shape.parameters[i];
    // The last layer's bias and norm.
    const bool shared = full.is_vector && full.rows == 3;
    CHECK(subnet.is_shared(static_cast<int>(i)) == shared);
  }
  const absl::StatusOr<ModelShape> small = ShapeOf(SubnetModel(c.model, subnet));
  REQUIRE(small.ok());
  CHECK(small->size == subnet.shape.size);
  CHECK(small->widths == subnet.shape.widths);
  for (size_t i = 0; i < small->parameters.size(); ++i) {
    CHECK(small->parameters[i].name == subnet.shape.parameters[i].name);
    CHECK(small->parameters[i].rows == subnet.shape.parameters[i].rows);
    CHECK(small->parameters[i].columns == subnet.shape.parameters[i].columns);
  }
}

TEST_CASE("what lies in front of the first linear layer is whole and shared", "[subnet][images]") {
  v1::Model model;
  for (const int64_t extent : {2, 6, 5}) model.add_input(extent);
  v1::Conv2d* const conv = model.add_layers()->mutable_conv2d();
  conv->set_channels(8);
  conv->add_kernel(3);
  conv->set_bias(true);
  model.add_layers()->mutable_batch_norm()->set_affine(true);
  model.add_layers()->mutable_max_pool()->add_kernel(2);
  for (const int64_t units : {8, 6, 3}) model.add_layers()->mutable_linear()->set_units(units);
  const Case c(model);
  // The groups of the linear layers have the numbers that they have without a convolution: the same parts.
  const std::vector<int64_t> first(c.groups.widths.begin(), c.groups.widths.begin() + 4);
  CHECK(first == std::vector<int64_t>{16, 8, 6, 3});
  CHECK(c.groups.outputs == 3);
  for (size_t group = 0; group < c.groups.widths.size(); ++group) {
    CHECK(c.groups.IsCut(static_cast<int>(group)) == (group == 1 || group == 2));
  }
  for (const uint32_t site : {0u, 1u}) {
    const Subnet subnet = SubnetOf(c.shape, c.groups, {1, 1, site, {1, 1}});
    for (size_t i = 0; i < c.shape.parameters.size(); ++i) {
      CHECK(subnet.is_shared(static_cast<int>(i)) == (c.shape.parameters[i].layer < 2));
    }
    const absl::StatusOr<ModelShape> small = ShapeOf(SubnetModel(c.model, subnet));
    REQUIRE(small.ok());
    CHECK(small->size == subnet.shape.size);
    CHECK(small->widths == subnet.shape.widths);
    CHECK(small->images == subnet.shape.images);
    CHECK(subnet.shape.size == (8 * 18 + 8 + 8 + 8) + 4 * 16 + 3 * 4 + 3 * 3);
  }
}

TEST_CASE("units that a norm within rows reads, or a convolution in groups, are whole",
          "[subnet][images]") {
  v1::Model model;
  for (const int64_t extent : {3, 6, 5}) model.add_input(extent);
  const auto convolve = [&](int64_t channels, int64_t groups) {
    v1::Conv2d* const conv = model.add_layers()->mutable_conv2d();
    conv->set_channels(channels);
    conv->add_kernel(2);
    conv->set_groups(groups);
  };
  convolve(4, 1);
  model.add_layers()->mutable_local_response_norm()->set_size(5);
  convolve(5, 1);
  model.add_layers()->mutable_tanh();
  convolve(6, 1);
  convolve(8, 2);
  model.add_layers()->mutable_linear()->set_units(9);
  model.add_layers()->mutable_layer_norm()->set_affine(true);
  model.add_layers()->mutable_linear()->set_units(10);
  model.add_layers()->mutable_gelu();
  model.add_layers()->mutable_linear()->set_units(12);
  v1::GroupNorm* const norm = model.add_layers()->mutable_group_norm();
  norm->set_affine(true);
  norm->set_groups(3);
  model.add_layers()->mutable_linear()->set_units(3);
  const ModelShape shape = *ShapeOf(model);
  const auto cut = [&](const SubnetRules& rules) {
    const NeuronGroups groups = GroupsOf(shape, rules);
    return std::vector<int64_t>(groups.widths.begin() + 1, groups.widths.begin() + groups.outputs);
  };
  CHECK(cut({}) == std::vector<int64_t>{10});
  SubnetRules rules;
  rules.channels = true;
  CHECK(cut(rules) == std::vector<int64_t>{5, 10});
  // A subnet is a model with the same layers.
  const NeuronGroups groups = GroupsOf(shape, rules);
  const Subnet subnet = SubnetOf(shape, groups, {1, 1, 0, {1, 1}});
  const absl::StatusOr<ModelShape> small = ShapeOf(SubnetModel(model, subnet));
  REQUIRE(small.ok());
  CHECK(small->size == subnet.shape.size);
  CHECK(small->images == subnet.shape.images);
}

TEST_CASE("a site has whole heads: rows of queries, keys and values, and columns behind them",
          "[subnet][sequences]") {
  v1::Model model;
  model.mutable_tokens()->set_vocabulary(9);
  model.mutable_tokens()->set_context(4);
  v1::Embedding* const embedding = model.add_layers()->mutable_embedding();
  embedding->set_units(8);
  embedding->set_positions("learned");
  google::protobuf::RepeatedPtrField<v1::Layer>* block =
      model.add_layers()->mutable_residual()->mutable_layers();
  block->Add()->mutable_layer_norm()->set_affine(true);
  block->Add()->mutable_attention()->set_heads(4);
  block->Mutable(1)->mutable_attention()->set_bias(true);
  block = model.add_layers()->mutable_residual()->mutable_layers();
  for (const int64_t units : {10, 8}) {
    block->Add()->mutable_linear()->set_units(units);
    if (units == 10) block->Add()->mutable_gelu();
  }
  model.add_layers()->mutable_linear()->set_units(9);
  model.mutable_layers(3)->mutable_linear()->set_bias(true);

  const ModelShape shape = *ShapeOf(model);
  const auto cut = [&](const SubnetRules& rules) {
    const NeuronGroups groups = GroupsOf(shape, rules);
    return std::vector<int64_t>(groups.widths.begin() + 1, groups.widths.begin() + groups.outputs);
  };
  CHECK(cut({}) == std::vector<int64_t>{10});
  SubnetRules rules;
  rules.channels = true;
  CHECK(cut(rules) == std::vector<int64_t>{4, 10});

  const NeuronGroups groups = GroupsOf(shape, rules);
  std::vector<std::vector<int>> owners(shape.parameters.size());
  for (size_t p = 0; p < owners.size(); ++p) owners[p].resize(shape.parameters[p].size());
  for (const uint32_t site : {0u, 1u, 2u}) {
    const Subnet subnet = SubnetOf(shape, groups, {1, 5, site, {1, 1, 2}});
    const std::vector<int32_t>& heads = subnet.neurons[1];
    std::vector<int32_t> rows;
    for (const int third : {0, 8, 16}) {
      for (const int32_t head : heads) {
        rows.push_back(third + 2 * head);
        rows.push_back(third + 2 * head + 1);
      }
    }
    const std::vector<int32_t> columns(rows.begin(), rows.begin() + 2 * heads.size());
    // embedding's weight and positions, norm's weight and bias, then the attention's
    CHECK(subnet.rows(4) == rows);
    CHECK(subnet.rows(5) == rows);
    CHECK(subnet.columns(6) == columns);
    for (size_t p = 0; p < owners.size(); ++p) {
      const ParameterSpec& spec = shape.parameters[p];
      for (const int32_t row : subnet.rows(static_cast<int>(p))) {
        const std::vector<int32_t> all =
            spec.is_vector ? std::vector<int32_t>{0} : subnet.columns(static_cast<int>(p));
        for (const int32_t column : all) ++owners[p][row * spec.columns + column];
      }
    }
    const absl::StatusOr<ModelShape> small = ShapeOf(SubnetModel(model, subnet));
    REQUIRE(small.ok());
    CHECK(small->size == subnet.shape.size);
    CHECK(small->images == subnet.shape.images);
    CHECK(small->widths == subnet.shape.widths);
  }
  for (size_t p = 0; p < owners.size(); ++p) {
    const int each = groups.IsShared(static_cast<int>(p)) ? 3 : 1;
    CHECK(std::all_of(owners[p].begin(), owners[p].end(), [&](int n) { return n == each; }));
  }
}

TEST_CASE("one site owns everything", "[subnet]") {
  const Case c(FullyConnected({5, 8, 3}, true, false));
  const Subnet subnet = SubnetOf(c.shape, c.groups, {1, 17, 0, {1}});
  CHECK(subnet.shape.size == c.shape.size);
  CHECK(LayoutHash(subnet.shape, 2) == LayoutHash(c.shape, 2));
}

TEST_CASE("servers' rows of a subnet are contiguous and make up the whole", "[subnet]") {
  std::mt19937_64 random(3);
  for (int i = 0; i < 300; ++i) {
    const Case c(FullyConnected({int64_t(1 + random() % 9), int64_t(4 + random() % 40),
                                 int64_t(4 + random() % 40), int64_t(1 + random() % 9)},
                                true, random() % 2 == 0));
    const int sites = 1 + static_cast<int>(random() % 4);
    const Subnet subnet = SubnetOf(
        c.shape, c.groups,
        {random(), random() % 99, uint32_t(random() % sites), std::vector<uint32_t>(sites, 1)});
    const int servers = 1 + static_cast<int>(random() % 5);
    int64_t size = 0;
    std::vector<int64_t> next(c.shape.parameters.size(), 0);
    for (int s = 0; s < servers; ++s) {
      const ShardSlices full = SlicesOf(c.shape, ShardId(s), servers);
      const ShardSlices own = SubnetSlices(subnet, full);
      size += own.size;
      for (const Slice& slice : own.slices) {
        REQUIRE(slice.row_begin == next[slice.parameter]);
        next[slice.parameter] = slice.row_end;
        const auto whole =
            std::find_if(full.slices.begin(), full.slices.end(),
                         [&](const Slice& f) { return f.parameter == slice.parameter; });
        REQUIRE(whole != full.slices.end());
        for (int64_t row = slice.row_begin; row < slice.row_end; ++row) {
          const int32_t neuron = subnet.rows(slice.parameter)[row];
          REQUIRE(neuron >= whole->row_begin);
          REQUIRE(neuron < whole->row_end);
        }
      }
    }
    REQUIRE(size == subnet.shape.size);
  }
}

}  // namespace
}  // namespace tessera
