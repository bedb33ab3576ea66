// The model that simulated subnets are cut from, and which of its entries are whose.
#ifndef TESSERA_TESTS_SIM_SUBNET_ENTRIES_H_
#define TESSERA_TESTS_SIM_SUBNET_ENTRIES_H_

#include <cstdint>
#include <vector>

#include "common/keyset/key_set.h"
#include "common/keyset/subnet.h"
#include "common/layout/parameters.h"
#include "common/layout/shard_map.h"
#include "tests/sim/model_entries.h"

namespace tessera {

class SubnetEntries {
 public:
  SubnetEntries(uint64_t seed, int servers);

  const ModelShape& shape() const { return shape_; }
  const NeuronGroups& groups() const { return groups_; }
  uint64_t seed() const { return seed_; }
  // Neurons of the least layer that is dealt.
  int64_t members_max() const;
  // The parts of all sites of `place`'s round, the first to the last, have each hidden neuron once,
  // and each site has some of every layer.
  bool IsPartition(SubnetPlace place) const;

  // One entry of a site on one server.
  struct Entry {
    // In the server's dense order.
    int64_t position = 0;
    // Over the whole model.
    int64_t number = 0;
    bool shared = false;
  };
  // In the order of the wire, by the definition: every entry of `slices` is asked whether its row and
  // its column are the site's.
  std::vector<Entry> OnServer(const SubnetPlace& place, const ShardSlices& slices) const;
  // What a worker makes of its place: the keys, and which entries its arrays have.
  struct Part {
    KeySet keys;
    EntryNumbers numbers;
  };
  Part SiteOf(const SubnetPlace& place) const;
  std::vector<float> InitialValues(const ShardSlices& slices) const;

 private:
  // Before the first entry of a parameter.
  int64_t Offset(int parameter) const;

  const uint64_t seed_;
  const int servers_;
  ModelShape shape_;
  NeuronGroups groups_;
};

}  // namespace tessera

#endif  // TESSERA_TESTS_SIM_SUBNET_ENTRIES_H_
