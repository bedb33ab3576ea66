#include "server/shard/shard_traits.h"

namespace tessera {

ShardTraits TraitsOf(const Shard::Options& options) {
  const ShardSlices slices = SlicesOf(options.shape, options.shard, options.shard_count);
  const bool trains_subnets = options.groups.has_value();
  return {options.shape,
          slices,
          LayoutHash(options.shape, options.shard_count),
          options.seed,
          options.codecs,
          CodedForms(options.codecs, slices, options.shape),
          trains_subnets,
          /*takes_whole=*/!options.cut && (!trains_subnets || options.whole_kind.has_value()),
          /*moves_cores=*/!trains_subnets && options.core.has_value(),
          options.cut ? std::make_shared<const LayerParts>(*options.cut, slices, options.shape,
                                                           options.codecs)
                      : nullptr};
}

ShardTraits TraitsOf(const Shard& shard) {
  return {shard.shape(),          shard.slices(),      shard.layout_hash(),
          shard.seed(),           shard.codecs(),      shard.dense_forms(),
          shard.trains_subnets(), shard.takes_whole(), shard.cores() != nullptr,
          shard.layer_parts()};
}

}  // namespace tessera
