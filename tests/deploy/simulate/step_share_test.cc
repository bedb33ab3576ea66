// A part's share of the work, by hand.
#include "deploy/simulate/step_share.h"

#include <catch2/catch.hpp>
#include <vector>

#include "common/keyset/key_set.h"
#include "common/keyset/subnet.h"
#include "common/layout/layer_cut.h"
#include "proto/job.pb.h"

namespace tessera {
namespace {

struct Model {
  // Three linear layers, with biases and affine norms: 7, 4, 6, 3 neurons.
  Model() {
    model.add_input(7);
    for (const int units : {4, 6, 3}) {
      model.add_layers()->mutable_linear()->set_units(units);
      model.mutable_layers(model.layers_size() - 1)->mutable_linear()->set_bias(true);
      model.add_layers()->mutable_batch_norm()->set_affine(true);
    }
    shape = *ShapeOf(model);
    groups = GroupsOf(shape);
  }
  KeySet Keys(uint32_t site, std::vector<uint32_t> shares, int servers) const {
    const SubnetPlace place{1, 1, site, std::move(shares)};
    return SubnetKeys(shape, SubnetOf(shape, groups, place), place, servers);
  }

  v1::Model model;
  ModelShape shape;
  NeuronGroups groups;
};

TEST_CASE("all entries, and a cut with one site, are the whole of the work", "[step_share]") {
  const Model m;
  const StepShare share(m.shape, 7);
  CHECK(share.Of(DenseKeys(m.shape, 2)) == 1);
  CHECK(share.Of(KeySet()) == 1);
  CHECK(share.Of(m.Keys(0, {1}, 3)) == Approx(1));
}

TEST_CASE("weights count, the first twice and others three times, and vectors do not",
          "[step_share]") {
  const Model m;
  const StepShare share(m.shape, 7);
  const double whole = 2 * 7 * 4 + 3 * 4 * 6 + 3 * 6 * 3;
  const int servers = GENERATE(1, 2, 5);
  CHECK(share.Of(m.Keys(1, {1, 1}, servers)) ==
        Approx((2 * 7 * 2 + 3 * 2 * 3 + 3 * 3 * 3) / whole));
  CHECK(share.Of(m.Keys(0, {3, 1}, servers)) ==
        Approx((2 * 7 * 3 + 3 * 3 * 4 + 3 * 4 * 3) / whole));
}

TEST_CASE("a convolution's weights count in each place, and all sites have them",
          "[step_share][images]") {
  v1::Model model;
  for (const int extent : {2, 6, 5}) model.add_input(extent);
  for (const int channels : {3, 4}) {
    v1::Conv2d* const conv = model.add_layers()->mutable_conv2d();
    conv->set_channels(channels);
    conv->add_kernel(3);
    if (channels == 3) conv->add_padding(1);
  }
  for (const int units : {8, 10}) model.add_layers()->mutable_linear()->set_units(units);
  const ModelShape shape = *ShapeOf(model);
  const NeuronGroups groups = GroupsOf(shape);
  const SubnetPlace place{1, 1, 0, {1, 1}};
  const StepShare share(shape, 60);
  const double front = 2 * 30 * (3 * 18) + 3 * 12 * (4 * 27);
  const double whole = front + 3 * 48 * 8 + 3 * 8 * 10;
  CHECK(share.Of(SubnetKeys(shape, SubnetOf(shape, groups, place), place, 2)) ==
        Approx((front + 3 * 48 * 4 + 3 * 4 * 10) / whole));
  // Cut in front of the first linear layer.
  const LayerCut cut = *CutBeforeLinear(model);
  CHECK(share.Of(cut.front()) == Approx(front / whole));
  CHECK(share.Of(cut.front()) + share.Of(cut.back()) == Approx(1));
  CHECK(share.ForwardOf(cut.front()) == Approx((30 * (3 * 18) + 12 * (4 * 27)) / whole));
  CHECK(share.ForwardOf(cut.back()) == Approx(share.Of(cut.back()) / 3));
}

TEST_CASE("of sparse rows the first weight meets the entries alone", "[step_share]") {
  const Model m;
  const StepShare share(m.shape, 1.5);
  const double whole = 2 * 1.5 * 4 + 3 * 4 * 6 + 3 * 6 * 3;
  CHECK(share.Of(m.Keys(1, {1, 1}, 2)) == Approx((2 * 1.5 * 2 + 3 * 2 * 3 + 3 * 3 * 3) / whole));
}

}  // namespace
}  // namespace tessera
