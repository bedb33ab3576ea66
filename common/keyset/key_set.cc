#include "common/keyset/key_set.h"

namespace tessera {

NamedKeys KeySet::On(size_t server) const {
  if (subnet.has_value()) return *subnet;
  if (is_sparse()) return NamedCore{sparse[server]->core->name, 0, std::nullopt};
  if (layers.has_value()) return *layers;
  if (fragment.has_value()) return *fragment;
  return AllEntries();
}

KeySet DenseKeys(const ModelShape& shape, const Sharding& sharding) {
  // Every server's own rows, all of them.
  KeySet keys;
  for (int s = 0; s < sharding.count; ++s) {
    keys.slices.push_back(SlicesOf(shape, ShardId(s), sharding));
  }
  return keys;
}

KeySet LayerKeys(const ModelShape& shape, const Sharding& sharding, const ParameterRange& range) {
  KeySet keys = DenseKeys(shape, sharding);
  keys.layers = range;
  for (ShardSlices& slices : keys.slices) slices = SlicesOfLayers(slices, range);
  return keys;
}

KeySet KeysOfFragment(const ModelShape& shape, int servers, const Fragment& fragment) {
  KeySet keys = DenseKeys(shape, servers);
  keys.fragment = fragment;
  for (ShardSlices& slices : keys.slices) slices = SlicesOfFragment(slices, fragment);
  return keys;
}

KeySet SubnetKeys(const ModelShape& full, const Subnet& subnet, const SubnetPlace& place,
                  int servers) {
  KeySet keys;
  keys.subnet = place;
  for (int s = 0; s < servers; ++s) {
    keys.slices.push_back(SubnetSlices(subnet, SlicesOf(full, ShardId(s), servers)));
  }
  return keys;
}

KeySet NoKeys(const SubnetPlace& place, int servers) {
  KeySet keys;
  keys.subnet = place;
  keys.slices.resize(servers);
  // Whoever has no part in a round still names its keys, none on each server, and waits for the round's end.
  keys.waits_only = true;
  return keys;
}

}  // namespace tessera
