#include "common/keyset/subnet.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "common/base/check.h"
#include "common/base/philox.h"
#include "common/layout/layers/layer_kinds.h"

namespace tessera {

namespace {

// The group of as many whole neurons; a new one, if there is none.
int WholeGroup(int64_t width, NeuronGroups* groups) {
  const int count = static_cast<int>(groups->widths.size());
  for (int group = groups->outputs + 1; group < count; ++group) {
    if (groups->widths[group] == width) return group;
  }
  groups->widths.push_back(width);
  return count;
}

}  // namespace

NeuronGroups GroupsOf(const v1::Model& model, const ModelShape& shape) {
  NeuronGroups groups;
  int first_linear = 0;
  while (first_linear < model.layers_size() &&
         !LayerKindOf(model.layers(first_linear)).makes_units()) {
    ++first_linear;
  }
  groups.widths.push_back(shape.widths[first_linear]);
  for (const v1::Layer& layer : model.layers()) {
    const LayerKind& kind = LayerKindOf(layer);
    if (kind.makes_units()) groups.widths.push_back(kind.units(layer));
  }
  groups.outputs = static_cast<int>(groups.widths.size()) - 1;
  const auto in_front = [&](int64_t width) {
    return width == groups.widths[0] ? 0 : WholeGroup(width, &groups);
  };
  int group = 0;  // of the activations before a layer, once there was a linear one
  size_t parameter = 0;
  for (int layer = 0; layer < model.layers_size(); ++layer) {
    const bool front = layer < first_linear;
    groups.activations.push_back(front ? -1 : group);
    const int before = group;
    if (LayerKindOf(model.layers(layer)).makes_units()) ++group;
    for (; parameter < shape.parameters.size() && shape.parameters[parameter].layer == layer;
         ++parameter) {
      const ParameterSpec& spec = shape.parameters[parameter];
      NeuronGroups::Use use{front ? in_front(spec.rows) : group, -1};
      if (!spec.is_vector) use.columns = front ? in_front(spec.columns) : before;
      groups.uses.push_back(use);
    }
  }
  groups.activations.push_back(first_linear < model.layers_size() ? group : -1);
  TESSERA_CHECK(groups.uses.size() == shape.parameters.size());
  return groups;
}

std::vector<int32_t> PartOf(const SubnetPlace& place, int group, int64_t width) {
  TESSERA_CHECK(place.site < place.sites() && place.round < (uint64_t{1} << 40));
  std::vector<std::pair<uint64_t, int32_t>> order(width);
  const uint64_t a = place.round | static_cast<uint64_t>(group) << 40;
  for (int64_t neuron = 0; neuron < width; ++neuron) {
    const PhiloxBlock block = Philox(place.seed, Stream::kSubnet, a, neuron);
    order[neuron] = {uint64_t{block[1]} << 32 | block[0], static_cast<int32_t>(neuron)};
  }
  const auto first_share = place.shares.begin();
  const int64_t all = std::accumulate(first_share, place.shares.end(), int64_t{0});
  const int64_t before = std::accumulate(first_share, first_share + place.site, int64_t{0});
  const int64_t begin = width * before / all;
  const int64_t end = width * (before + place.shares[place.site]) / all;
  // Only the borders of the part need be in place.
  if (begin > 0) std::nth_element(order.begin(), order.begin() + begin, order.end());
  if (end < width) std::nth_element(order.begin() + begin, order.begin() + end, order.end());
  std::vector<int32_t> part;
  part.reserve(end - begin);
  for (int64_t i = begin; i < end; ++i) part.push_back(order[i].second);
  std::sort(part.begin(), part.end());
  return part;
}

Subnet SubnetOf(const ModelShape& full, const NeuronGroups& groups, const SubnetPlace& place) {
  Subnet subnet;
  subnet.groups = groups;
  for (int group = 0; group < static_cast<int>(groups.widths.size()); ++group) {
    if (groups.IsCut(group)) {
      subnet.neurons.push_back(PartOf(place, group, groups.widths[group]));
    } else {
      std::vector<int32_t> all(groups.widths[group]);
      std::iota(all.begin(), all.end(), 0);
      subnet.neurons.push_back(std::move(all));
    }
  }
  subnet.shape = full;
  subnet.shape.size = 0;
  for (size_t i = 0; i < full.parameters.size(); ++i) {
    ParameterSpec& spec = subnet.shape.parameters[i];
    spec.rows = static_cast<int64_t>(subnet.rows(i).size());
    if (!spec.is_vector) spec.columns = static_cast<int64_t>(subnet.columns(i).size());
    subnet.shape.size += spec.size();
  }
  for (size_t i = 0; i < full.widths.size(); ++i) {
    const int group = groups.activations[i];
    if (group < 0) continue;
    subnet.shape.widths[i] = static_cast<int64_t>(subnet.neurons[group].size());
    if (groups.IsCut(group)) subnet.shape.images[i] = {subnet.shape.widths[i], 1, 1};
  }
  return subnet;
}

ShardSlices SubnetSlices(const Subnet& subnet, const ShardSlices& full) {
  ShardSlices result;
  result.shard = full.shard;
  result.shard_count = full.shard_count;
  for (const Slice& whole : full.slices) {
    const std::vector<int32_t>& rows = subnet.rows(whole.parameter);
    Slice slice;
    slice.parameter = whole.parameter;
    slice.row_begin = std::lower_bound(rows.begin(), rows.end(), whole.row_begin) - rows.begin();
    slice.row_end = std::lower_bound(rows.begin(), rows.end(), whole.row_end) - rows.begin();
    slice.columns = subnet.shape.parameters[whole.parameter].columns;
    slice.offset = result.size;
    if (slice.size() == 0) continue;
    result.size += slice.size();
    result.slices.push_back(slice);
  }
  return result;
}

v1::Model SubnetModel(const v1::Model& model, const Subnet& subnet) {
  v1::Model small = model;
  int group = 0;
  for (v1::Layer& layer : *small.mutable_layers()) {
    const LayerKind& kind = LayerKindOf(layer);
    if (!kind.makes_units()) continue;
    ++group;
    kind.set_units(static_cast<int64_t>(subnet.neurons[group].size()), &layer);
  }
  return small;
}

}  // namespace tessera
