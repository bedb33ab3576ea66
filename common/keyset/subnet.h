// Independent subnets: in each round every hidden unit that is cut belongs to one site, and a site trains the network
// of its units alone.
//
// Yuan, Wolfe, Dun, Tang, Kyrillidis, Jermaine: Distributed Learning of Deep Neural Networks using
// Independent Subnet Training, VLDB 2022.
//
// A *group* is a set of units, neurons, channels or heads of attention, that share an index: a layer that makes units
// makes a new one, and element-wise and per-unit layers, as batch norm, relu, dropout and pooling are, keep it. A group
// is cut anew each round if nothing else reads it: what the model reads and makes, what a residual sum or a concat
// joins, and what a layer that mixes units has in front of it and behind it is whole at every site. Whether the
// channels of convolutions and the heads of attention are cut, or the neurons of linear layers alone, is the job's
// choice.
//
// Groups that are cut have the numbers from 1 on, in the order of the layers that make them; whole ones are group 0 and
// those from `outputs` on. In a job of tensors, which has no layers, the job names the groups that are cut
// (model.groups), and they are numbered in the order of their names.
//
// The units of group g in round r, sorted by (key, unit) with key the first 64 bits of
// Philox(seed, kSubnet, r | g << 40, unit), are cut into consecutive parts: site s of S gets the
// positions [N w(s) / W, N w(s+1) / W) in integer division, where w(s) sums the shares of the sites
// before s and W those of all. Equal shares: sizes differ by at most one. Where the order is rolling, units are sorted
// as in round 0, and in round r all parts of group g have moved on by N (g r mod S) / S positions around the circle, so
// that the parts of neighbouring groups meet in all combinations (after Alam, Liu, Yan, Zhang: FedRolex, NeurIPS 2022,
// where parts move on by one unit). Both sides of the wire
// derive this, so that no index is ever sent. Within a part units are in ascending order, which
// makes every server's rows of a part contiguous in the subnet's arrays.
#ifndef TESSERA_COMMON_KEYSET_SUBNET_H_
#define TESSERA_COMMON_KEYSET_SUBNET_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "common/layout/parameters.h"
#include "common/layout/shard_map.h"
#include "proto/job.pb.h"

namespace tessera {

// What a job says about how its subnets are cut.
struct SubnetRules {
  // The channels of convolutions and the heads of attention are cut as well as the neurons of linear layers.
  bool channels = false;
  // Parts move on from round to round instead of being drawn anew.
  bool rolling = false;
};

// Which units index the rows and the columns of each parameter.
struct NeuronGroups {
  std::vector<int64_t> widths;  // by group
  // The indices of a dimension are [times, units, each]: each unit has `each` side by side, as often as `times` says.
  struct Spread {
    int64_t times = 1;
    int64_t each = 1;

    int64_t per_unit() const { return times * each; }
    friend bool operator<(const Spread& a, const Spread& b) {
      return a.times != b.times ? a.times < b.times : a.each < b.each;
    }
  };
  struct Use {
    int rows = 0;
    int columns = -1;  // -1: a vector
    // A head has rows of queries, of keys and of values.
    Spread row_spread = {};
    // A unit has as many columns as a kernel or a flattened image has places, or as a head is wide.
    Spread column_spread = {};
  };
  std::vector<Use> uses;  // by parameter
  // By activation, as ModelShape::widths: the group of its units if that is cut, or else -1.
  std::vector<int> activations;
  // The first whole group but 0; the last one's units are the model's outputs in a model of layers without blocks.
  int outputs = 0;
  bool rolling = false;
  bool IsCut(int group) const { return group > 0 && group < outputs; }
  // Indexed by no unit that is cut: every site has all of it, and the mean is kept.
  bool IsShared(int parameter) const {
    return !IsCut(uses[parameter].rows) && !IsCut(uses[parameter].columns);
  }
};

NeuronGroups GroupsOf(const ModelShape& shape, const SubnetRules& rules = {});

// One site's place in one round.
struct SubnetPlace {
  uint64_t seed = 0;
  uint64_t round = 0;  // below 2^40
  uint32_t site = 0;
  // One for each site, each at least 1; their sum is below 2^31.
  std::vector<uint32_t> shares;

  uint32_t sites() const { return static_cast<uint32_t>(shares.size()); }

  friend bool operator==(const SubnetPlace& a, const SubnetPlace& b) {
    return a.seed == b.seed && a.round == b.round && a.site == b.site && a.shares == b.shares;
  }
};

// Where parts differ in size: the least and the largest share, as multiples of the mean.
constexpr double kPartLeast = 0.25;
constexpr double kPartMost = 4;
// The largest that one of so many sites may have when the others have the least.
inline double LargestPart(int64_t sites) {
  return std::min(kPartMost,
                  static_cast<double>(sites) - kPartLeast * static_cast<double>(sites - 1));
}

// The units of one group that `place` owns, ascending.
std::vector<int32_t> PartOf(const SubnetPlace& place, int group, int64_t width,
                            bool rolling = false);

// What a site holds in one round.
struct Subnet {
  // The small model's parameters: the full ones' names, its own sizes.
  ModelShape shape;
  // By group: its units, ascending; for groups that are whole, all of them.
  std::vector<std::vector<int32_t>> neurons;
  NeuronGroups groups;
  // Rows and columns of groups of which each unit has several, ascending; and for each parameter their places there,
  // or -1.
  std::vector<std::vector<int32_t>> index_lists;
  std::vector<int> row_list_of;
  std::vector<int> column_list_of;

  const std::vector<int32_t>& rows(int parameter) const {
    const int list = row_list_of[parameter];
    return list >= 0 ? index_lists[list] : neurons[groups.uses[parameter].rows];
  }
  // The units of the columns that the site has of a matrix.
  const std::vector<int32_t>& columns(int parameter) const {
    const int list = column_list_of[parameter];
    return list >= 0 ? index_lists[list] : neurons[groups.uses[parameter].columns];
  }
  bool is_shared(int parameter) const { return groups.IsShared(parameter); }
};

Subnet SubnetOf(const ModelShape& full, const NeuronGroups& groups, const SubnetPlace& place);

// A server's part of a subnet, in the subnet's own indices: of each parameter the rows that the
// server owns, which are contiguous. The order on the wire is the order of the slices, row by row.
ShardSlices SubnetSlices(const Subnet& subnet, const ShardSlices& full);

// `model` with the widths of `subnet`.
v1::Model SubnetModel(const v1::Model& model, const Subnet& subnet);

}  // namespace tessera

#endif  // TESSERA_COMMON_KEYSET_SUBNET_H_
