#include "common/keyset/subnet.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include "common/base/check.h"
#include "common/base/philox.h"
#include "common/layout/layers/layer_kind.h"

namespace tessera {

namespace {

// The activations of a model, of which those that share units are joined.
class Dimensions {
 public:
  explicit Dimensions(size_t activations) : parent_(activations), whole_(activations) {
    std::iota(parent_.begin(), parent_.end(), size_t{0});
  }
  size_t Root(size_t i) const {
    while (parent_[i] != i) i = parent_[i];
    return i;
  }
  void Join(size_t a, size_t b) {
    a = Root(a);
    b = Root(b);
    parent_[b] = a;
    // Whatever is joined to units that stay whole stays whole.
    whole_[a] = whole_[a] || whole_[b];
  }
  void KeepWhole(size_t i) { whole_[Root(i)] = true; }
  bool IsWhole(size_t i) const { return whole_[Root(i)]; }

 private:
  // A union-find forest; models have too few layers for anything better than walking up.
  std::vector<size_t> parent_;
  std::vector<bool> whole_;
};

Dimensions DimensionsOf(const ModelShape& shape, const SubnetRules& rules) {
  Dimensions dimensions(shape.widths.size());
  for (size_t i = 0; i < shape.layers.size(); ++i) {
    const ModelLayer& layer = shape.layers[i];
    const size_t out = i + 1;
    const bool keeps_whole = layer.kind->keeps_whole(layer.settings);
    if (!layer.kind->makes_units()) {
      if (layer.settings.has_concat()) {
        // Concatenated outputs lie one behind the other, so that units of the parts have other numbers in the whole.
        for (const int read : layer.reads) dimensions.KeepWhole(static_cast<size_t>(read + 1));
      } else {
        for (const int read : layer.reads) dimensions.Join(static_cast<size_t>(read + 1), out);
      }
    } else if (keeps_whole || layer.kind->reads_whole) {
      dimensions.KeepWhole(static_cast<size_t>(layer.reads[0] + 1));
    }
    const bool is_dealt = layer.kind->reads == LayerReads::kFeatures || rules.channels;
    if (keeps_whole || layer.kind->makes_whole || (layer.kind->makes_units() && !is_dealt)) {
      dimensions.KeepWhole(out);
    }
  }
  // A model's input and its output are the job's: they are never cut.
  dimensions.KeepWhole(0);
  dimensions.KeepWhole(shape.layers.size());
  return dimensions;
}

// What the first layer that reads features reads; where there is none, what the model reads.
int64_t FirstFeatures(const ModelShape& shape) {
  for (size_t i = 0; i < shape.layers.size(); ++i) {
    if (shape.layers[i].kind->reads == LayerReads::kFeatures) {
      const Image& before = shape.before(static_cast<int>(i));
      return before.is_sequence ? before.channels : before.size();
    }
  }
  return shape.inputs();
}

// The group of as many whole units; a new one, if there is none.
int WholeGroup(int64_t width, NeuronGroups* groups) {
  if (groups->widths[0] == width) return 0;
  const int count = static_cast<int>(groups->widths.size());
  for (int group = groups->outputs; group < count; ++group) {
    if (groups->widths[group] == width) return group;
  }
  groups->widths.push_back(width);
  return count;
}

// The groups of a job of tensors, whose file says what is cut.
NeuronGroups GroupsOfTensors(const ModelShape& shape, const SubnetRules& rules) {
  NeuronGroups groups;
  groups.rolling = rules.rolling;
  groups.widths.push_back(shape.parameters.empty() ? 1 : shape.parameters[0].rows);
  for (const TensorGroup& group : shape.groups) groups.widths.push_back(group.units);
  groups.outputs = static_cast<int>(groups.widths.size());
  groups.uses.resize(shape.parameters.size());
  // What no group names is whole.
  for (NeuronGroups::Use& use : groups.uses) use.rows = -1;
  for (size_t g = 0; g < shape.groups.size(); ++g) {
    const int number = static_cast<int>(g + 1);
    for (const int p : shape.groups[g].rows) {
      NeuronGroups::Use& use = groups.uses[static_cast<size_t>(p)];
      use.rows = number;
      use.row_spread.each = shape.parameters[static_cast<size_t>(p)].rows / shape.groups[g].units;
    }
    for (const int p : shape.groups[g].columns) {
      NeuronGroups::Use& use = groups.uses[static_cast<size_t>(p)];
      use.columns = number;
      // Further extents lie side by side, as a kernel's places do, and so do the indices of a unit that has several.
      use.column_spread.each =
          shape.parameters[static_cast<size_t>(p)].columns / shape.groups[g].units;
    }
  }
  std::map<int64_t, int> whole = {{groups.widths[0], 0}};
  const auto whole_of = [&](int64_t width) {
    const auto [found, is_new] = whole.emplace(width, static_cast<int>(groups.widths.size()));
    if (is_new) groups.widths.push_back(width);
    return found->second;
  };
  for (size_t i = 0; i < shape.parameters.size(); ++i) {
    const ParameterSpec& spec = shape.parameters[i];
    NeuronGroups::Use& use = groups.uses[i];
    if (use.rows < 0) use.rows = whole_of(spec.rows);
    if (!spec.is_vector && use.columns < 0) use.columns = whole_of(spec.columns);
  }
  return groups;
}

}  // namespace

NeuronGroups GroupsOf(const ModelShape& shape, const SubnetRules& rules) {
  if (shape.layers.empty()) return GroupsOfTensors(shape, rules);
  const Dimensions dimensions = DimensionsOf(shape, rules);
  NeuronGroups groups;
  groups.rolling = rules.rolling;
  groups.widths.push_back(FirstFeatures(shape));
  std::vector<int> number(shape.widths.size(), -1);  // by root
  for (size_t i = 0; i < shape.layers.size(); ++i) {
    const size_t root = dimensions.Root(i + 1);
    // Each joined dimension gets one group, numbered by the first layer that makes its units.
    if (!shape.layers[i].kind->makes_units() || dimensions.IsWhole(root) || number[root] >= 0) {
      continue;
    }
    number[root] = static_cast<int>(groups.widths.size());
    const ModelLayer& layer = shape.layers[i];
    // The group's units are what may be dealt: a head of attention, for example, is several columns at once.
    groups.widths.push_back(shape.images[i + 1].channels / (layer.unit_times * layer.unit_each));
  }
  groups.outputs = static_cast<int>(groups.widths.size());
  groups.widths.push_back(shape.outputs());
  for (size_t i = 0; i < shape.widths.size(); ++i) {
    groups.activations.push_back(number[dimensions.Root(i)]);
  }
  for (const ParameterSpec& spec : shape.parameters) {
    const int rows = groups.activations[static_cast<size_t>(spec.layer + 1)];
    NeuronGroups::Use use;
    use.rows = rows >= 0 ? rows : WholeGroup(spec.rows, &groups);
    const ModelLayer& layer = shape.layers[static_cast<size_t>(spec.layer)];
    if (rows >= 0) use.row_spread = {layer.unit_times, layer.unit_each};
    if (!spec.is_vector) {
      const int read = layer.reads[0];
      const int columns = groups.activations[static_cast<size_t>(read + 1)];
      use.columns = columns >= 0 ? columns : WholeGroup(spec.columns, &groups);
      if (columns >= 0) {
        use.column_spread.each = spec.columns / groups.widths[static_cast<size_t>(columns)];
      }
    }
    groups.uses.push_back(use);
  }
  return groups;
}

namespace {

// The units at positions [begin, end) of the sorted `order`, moved on as far as the round wants.
std::vector<int32_t> RolledPart(const SubnetPlace& place, int group, int64_t begin, int64_t end,
                                std::vector<std::pair<uint64_t, int32_t>> order) {
  const auto width = static_cast<int64_t>(order.size());
  const int64_t sites = place.sites();
  // Group g moves on by g parts a round, so that the parts of neighbouring groups meet in all combinations.
  const int64_t moved =
      width * (group % sites * static_cast<int64_t>(place.round % sites) % sites) / sites;
  std::sort(order.begin(), order.end());
  std::vector<int32_t> part;
  for (int64_t i = begin; i < end; ++i) part.push_back(order[(i + moved) % width].second);
  std::sort(part.begin(), part.end());
  return part;
}

}  // namespace

std::vector<int32_t> PartOf(const SubnetPlace& place, int group, int64_t width, bool rolling) {
  TESSERA_CHECK(place.site < place.sites() && place.round < (uint64_t{1} << 40));
  std::vector<std::pair<uint64_t, int32_t>> order(width);
  // Rolling parts have one order for the whole job; otherwise each round shuffles anew.
  const uint64_t a = (rolling ? 0 : place.round) | static_cast<uint64_t>(group) << 40;
  for (int64_t neuron = 0; neuron < width; ++neuron) {
    const PhiloxBlock block = Philox(place.seed, Stream::kSubnet, a, neuron);
    // Sorting units by random numbers of 64 bits shuffles them: equal ones are decided by the unit.
    order[neuron] = {uint64_t{block[1]} << 32 | block[0], static_cast<int32_t>(neuron)};
  }
  const auto first_share = place.shares.begin();
  const int64_t all = std::accumulate(first_share, place.shares.end(), int64_t{0});
  const int64_t before = std::accumulate(first_share, first_share + place.site, int64_t{0});
  // Borders follow from the shares alone, so that parts of all sites cover each unit just once.
  const int64_t begin = width * before / all;
  const int64_t end = width * (before + place.shares[place.site]) / all;
  if (rolling) return RolledPart(place, group, begin, end, std::move(order));
  // Only the borders of the part need be in place.
  if (begin > 0) std::nth_element(order.begin(), order.begin() + begin, order.end());
  if (end < width) std::nth_element(order.begin() + begin, order.begin() + end, order.end());
  std::vector<int32_t> part;
  part.reserve(end - begin);
  for (int64_t i = begin; i < end; ++i) part.push_back(order[i].second);
  std::sort(part.begin(), part.end());
  return part;
}

namespace {

// All indices of these units, out of `width` units.
std::vector<int32_t> IndicesOf(const std::vector<int32_t>& units, int64_t width,
                               const NeuronGroups::Spread& spread) {
  std::vector<int32_t> indices;
  indices.reserve(units.size() * static_cast<size_t>(spread.per_unit()));
  for (int64_t time = 0; time < spread.times; ++time) {
    for (const int32_t unit : units) {
      const int64_t first = (time * width + unit) * spread.each;
      for (int64_t k = 0; k < spread.each; ++k) indices.push_back(static_cast<int32_t>(first + k));
    }
  }
  return indices;
}

}  // namespace

Subnet SubnetOf(const ModelShape& full, const NeuronGroups& groups, const SubnetPlace& place) {
  Subnet subnet;
  subnet.groups = groups;
  for (int group = 0; group < static_cast<int>(groups.widths.size()); ++group) {
    if (groups.IsCut(group)) {
      subnet.neurons.push_back(PartOf(place, group, groups.widths[group], groups.rolling));
    } else {
      std::vector<int32_t> all(groups.widths[group]);
      std::iota(all.begin(), all.end(), 0);
      subnet.neurons.push_back(std::move(all));
    }
  }
  std::map<std::pair<int, NeuronGroups::Spread>, int> lists;
  const auto list_of = [&](int group, const NeuronGroups::Spread& spread) {
    // Where every unit is one index the units themselves serve as the list.
    if (group < 0 || spread.per_unit() == 1) return -1;
    const auto [at, is_new] =
        lists.emplace(std::pair(group, spread), static_cast<int>(lists.size()));
    if (is_new) {
      subnet.index_lists.push_back(IndicesOf(subnet.neurons[group], groups.widths[group], spread));
    }
    return at->second;
  };
  subnet.shape = full;
  subnet.shape.size = 0;
  for (size_t i = 0; i < full.parameters.size(); ++i) {
    const NeuronGroups::Use& use = groups.uses[i];
    subnet.row_list_of.push_back(list_of(use.rows, use.row_spread));
    subnet.column_list_of.push_back(list_of(use.columns, use.column_spread));
    ParameterSpec& spec = subnet.shape.parameters[i];
    spec.rows = static_cast<int64_t>(subnet.rows(i).size());
    if (!spec.is_vector) spec.columns = static_cast<int64_t>(subnet.columns(i).size());
    // The columns of a convolution behind a cut are [channels, height, width]; only the channels are fewer. In a job of
    // tensors a unit may be several of what the first extent counts.
    if (!spec.columns_are.empty() && groups.IsCut(use.columns)) {
      const auto units = static_cast<int64_t>(subnet.neurons[use.columns].size());
      spec.columns_are[0] = spec.columns_are[0] * units / groups.widths[use.columns];
    }
    subnet.shape.size += spec.size();
  }
  for (size_t i = 0; i < full.widths.size(); ++i) {
    const int group = groups.activations[i];
    if (group < 0) continue;
    Image& image = subnet.shape.images[i];
    image.channels =
        image.channels / groups.widths[group] * static_cast<int64_t>(subnet.neurons[group].size());
    subnet.shape.widths[i] = image.size();
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
    // Rows are in ascending order, so that a server's are a run of the subnet's.
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

namespace {

using LayerList = google::protobuf::RepeatedPtrField<v1::Layer>;

// Sets the units of `layers`, of which the first is layer `*at` of the subnet's shape, and moves `*at` behind them.
// The copies of a repeat have parts of the same sizes, as their groups are as wide.
void SetUnits(const Subnet& subnet, LayerList* layers, size_t* at) {
  for (v1::Layer& layer : *layers) {
    if (layer.has_repeat()) {
      const int64_t times = layer.repeat().times();
      for (int64_t copy = 0; copy < times; ++copy) {
        SetUnits(subnet, layer.mutable_repeat()->mutable_layers(), at);
      }
      continue;
    }
    if (layer.has_residual()) {
      SetUnits(subnet, layer.mutable_residual()->mutable_layers(), at);
      SetUnits(subnet, layer.mutable_residual()->mutable_shortcut(), at);
    }
    if (layer.has_concat()) {
      for (v1::Branch& branch : *layer.mutable_concat()->mutable_branches()) {
        SetUnits(subnet, branch.mutable_layers(), at);
      }
    }
    const ModelShape& shape = subnet.shape;
    if (layer.has_attention()) {
      // It is three layers, the second of which knows the width of a head.
      const v1::Attention& heads = shape.layers[*at + 1].settings.attention();
      *at += 3;
      const int64_t width = shape.images[*at - 1].channels;
      layer.mutable_attention()->set_head_size(heads.head_size());
      layer.mutable_attention()->set_heads(width / heads.head_size());
      continue;
    }
    const LayerKind& kind = *shape.layers[*at].kind;
    ++*at;
    if (kind.makes_units()) kind.set_units(shape.images[*at].channels, &layer);
  }
}

}  // namespace

v1::Model SubnetModel(const v1::Model& model, const Subnet& subnet) {
  v1::Model small = model;
  size_t at = 0;
  SetUnits(subnet, small.mutable_layers(), &at);
  return small;
}

}  // namespace tessera
