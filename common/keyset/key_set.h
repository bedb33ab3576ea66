// Which entries an exchange moves, and where they lie in a worker's arrays.
#ifndef TESSERA_COMMON_KEYSET_KEY_SET_H_
#define TESSERA_COMMON_KEYSET_KEY_SET_H_

#include <cstddef>
#include <memory>
#include <optional>
#include <vector>

#include "common/keyset/named_keys.h"
#include "common/keyset/sparse_keys.h"
#include "common/keyset/subnet.h"
#include "common/layout/fragment.h"
#include "common/layout/layer_cut.h"
#include "common/layout/shard_map.h"

namespace tessera {

struct KeySet {
  // nullopt: all entries.
  std::optional<SubnetPlace> subnet;
  // By server: its entries, as rows of the worker's arrays (a subnet's rows are the subnet's own).
  std::vector<ShardSlices> slices;
  // Nothing is moved: a worker that has made its last round waits for that to close. `slices` are
  // empty.
  bool waits_only = false;
  // Not empty: by server, its entries that are moved (sparse_keys.h), out of `slices`.
  std::vector<std::shared_ptr<const SparseKeys>> sparse;

  // The layers that `slices` are of; nullopt: all.
  std::optional<ParameterRange> layers;
  // The fragment that `slices` are of; nullopt: all.
  std::optional<Fragment> fragment;

  // `slices` are not all that servers own.
  bool is_part() const { return subnet.has_value() || layers.has_value() || fragment.has_value(); }
  bool is_sparse() const { return !sparse.empty(); }
  // Returns the keys as messages to this server name them. A core's keys are left out.
  NamedKeys On(size_t server) const;
};

// All entries of `shape` on so many servers.
KeySet DenseKeys(const ModelShape& shape, const Sharding& sharding);

// The keys of these parameters. An empty range has no entries, on any server.
KeySet LayerKeys(const ModelShape& shape, const Sharding& sharding, const ParameterRange& range);

// The keys of one fragment, on servers of which some may have nothing of it.
KeySet KeysOfFragment(const ModelShape& shape, int servers, const Fragment& fragment);

// The keys of `subnet`, a part of `full`, at `place`.
KeySet SubnetKeys(const ModelShape& full, const Subnet& subnet, const SubnetPlace& place,
                  int servers);

// The keys of a worker that moves nothing in the round of `place`, and waits for its end.
KeySet NoKeys(const SubnetPlace& place, int servers);

}  // namespace tessera

#endif  // TESSERA_COMMON_KEYSET_KEY_SET_H_
