// Independent subnets: in each round every hidden neuron belongs to one site, and a site trains the
// network of its neurons alone.
//
// Yuan, Wolfe, Dun, Tang, Kyrillidis, Jermaine: Distributed Learning of Deep Neural Networks using
// Independent Subnet Training, VLDB 2022.
//
// A *group* is a set of neurons that share an index: what the first linear layer reads is group 0, and
// every linear layer makes the next one; batch norm, relu and dropout keep it. The last linear layer's
// group are the outputs. Those two are whole at every site; the groups between are cut anew each round.
// What lies in front of the first linear layer, convolutions above all, is whole, too: its groups come
// behind the outputs'.
//
// The neurons of group g in round r, sorted by (key, neuron) with key the first 64 bits of
// Philox(seed, kSubnet, r | g << 40, neuron), are cut into consecutive parts: site s of S gets the
// positions [N w(s) / W, N w(s+1) / W) in integer division, where w(s) sums the shares of the sites
// before s and W those of all. Equal shares: sizes differ by at most one. Both sides of the wire
// derive this, so that no index is ever sent. Within a part neurons are in ascending order, which
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

// Which neurons index the rows and the columns of each parameter.
struct NeuronGroups {
  std::vector<int64_t> widths;  // by group
  struct Use {
    int rows = 0;
    int columns = -1;  // -1: a vector
  };
  std::vector<Use> uses;  // by parameter
  std::vector<int>
      activations;  // before each layer and after the last; -1: whole, and nobody's index
  // The last linear layer's.
  int outputs = 0;
  bool IsCut(int group) const { return group > 0 && group < outputs; }
  // Indexed by no neuron that is cut: every site has all of it, and the mean is kept.
  bool IsShared(int parameter) const {
    return !IsCut(uses[parameter].rows) && !IsCut(uses[parameter].columns);
  }
};

NeuronGroups GroupsOf(const v1::Model& model, const ModelShape& shape);

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

// The neurons of one group that `place` owns, ascending.
std::vector<int32_t> PartOf(const SubnetPlace& place, int group, int64_t width);

// What a site holds in one round.
struct Subnet {
  // The small model's parameters: the full ones' names, its own sizes.
  ModelShape shape;
  // By group: its neurons, ascending; for groups that are whole, all of them.
  std::vector<std::vector<int32_t>> neurons;
  NeuronGroups groups;

  const std::vector<int32_t>& rows(int parameter) const {
    return neurons[groups.uses[parameter].rows];
  }
  // Of a matrix.
  const std::vector<int32_t>& columns(int parameter) const {
    return neurons[groups.uses[parameter].columns];
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
