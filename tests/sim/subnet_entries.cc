#include "tests/sim/subnet_entries.h"

#include <algorithm>

#include "tests/server/shard/subnet_cluster.h"

namespace tessera {

SubnetEntries::SubnetEntries(uint64_t seed, int servers) : seed_(seed), servers_(servers) {
  // Biases and affine norms, so that some entries follow a neuron and those of the last layer are
  // shared by all sites.
  const v1::Model model = FullyConnected({3, 11, 9, 2}, /*bias=*/true, /*norm=*/true);
  shape_ = *ShapeOf(model);
  groups_ = GroupsOf(shape_);
}

int64_t SubnetEntries::members_max() const { return 9; }

bool SubnetEntries::IsPartition(SubnetPlace place) const {
  for (int group = 0; group < static_cast<int>(groups_.widths.size()); ++group) {
    if (!groups_.IsCut(group)) continue;
    std::vector<int> owners(groups_.widths[group]);
    for (place.site = 0; place.site < place.sites(); ++place.site) {
      const std::vector<int32_t> part = PartOf(place, group, groups_.widths[group]);
      for (const int32_t neuron : part) ++owners[neuron];
      if (part.empty()) return false;
    }
    if (std::count(owners.begin(), owners.end(), 1) != groups_.widths[group]) return false;
  }
  return true;
}

int64_t SubnetEntries::Offset(int parameter) const {
  int64_t offset = 0;
  for (int i = 0; i < parameter; ++i) offset += shape_.parameters[i].size();
  return offset;
}

std::vector<SubnetEntries::Entry> SubnetEntries::OnServer(const SubnetPlace& place,
                                                          const ShardSlices& slices) const {
  std::vector<std::vector<bool>> owned;
  for (size_t group = 0; group < groups_.widths.size(); ++group) {
    const bool is_cut = groups_.IsCut(static_cast<int>(group));
    owned.emplace_back(groups_.widths[group], !is_cut);
    if (!is_cut) continue;
    for (const int32_t neuron : PartOf(place, static_cast<int>(group), groups_.widths[group])) {
      owned.back()[neuron] = true;
    }
  }
  std::vector<Entry> entries;
  for (const Slice& slice : slices.slices) {
    const NeuronGroups::Use& use = groups_.uses[slice.parameter];
    Entry entry;
    entry.shared = !groups_.IsCut(use.rows) && (use.columns < 0 || !groups_.IsCut(use.columns));
    for (int64_t row = slice.row_begin; row < slice.row_end; ++row) {
      for (int64_t column = 0; column < slice.columns; ++column) {
        if (!owned[use.rows][row] || (use.columns >= 0 && !owned[use.columns][column])) continue;
        entry.position = slice.offset + (row - slice.row_begin) * slice.columns + column;
        entry.number = Offset(slice.parameter) + row * slice.columns + column;
        entries.push_back(entry);
      }
    }
  }
  return entries;
}

SubnetEntries::Part SubnetEntries::SiteOf(const SubnetPlace& place) const {
  const Subnet subnet = SubnetOf(shape_, groups_, place);
  Part part;
  part.keys = SubnetKeys(shape_, subnet, place, servers_);
  for (int p = 0; p < static_cast<int>(shape_.parameters.size()); ++p) {
    const ParameterSpec& spec = shape_.parameters[p];
    std::vector<int64_t>& numbers = part.numbers.emplace_back();
    for (const int32_t row : subnet.rows(p)) {
      if (spec.is_vector) {
        numbers.push_back(Offset(p) + row);
        continue;
      }
      for (const int32_t column : subnet.columns(p)) {
        numbers.push_back(Offset(p) + row * spec.columns + column);
      }
    }
  }
  return part;
}

std::vector<float> SubnetEntries::InitialValues(const ShardSlices& slices) const {
  std::vector<float> values(slices.size);
  for (const Slice& slice : slices.slices) {
    FillInitialRows(shape_.parameters[slice.parameter], slice.parameter, seed_, slice.row_begin,
                    slice.row_end, values.data() + slice.offset);
  }
  return values;
}

}  // namespace tessera
