// What is known of a shard before it is made, and stays so whatever is restored in its place.
#ifndef TESSERA_SERVER_SHARD_SHARD_TRAITS_H_
#define TESSERA_SERVER_SHARD_SHARD_TRAITS_H_

#include <cstdint>
#include <memory>

#include "common/codec/coded_keys.h"
#include "common/layout/shard_map.h"
#include "server/shard/shard.h"

namespace tessera {

// As Shard's methods of the same names.
struct ShardTraits {
  ModelShape shape;
  ShardSlices slices;
  uint64_t layout_hash = 0;
  uint64_t seed = 0;
  CodecChoice codecs;
  CodedForms dense_forms;
  bool trains_subnets = false;
  bool takes_whole = false;
  // cores() is not nullptr.
  bool moves_cores = false;
  std::shared_ptr<const LayerParts> layer_parts;
};

// Of the shard that these would make.
ShardTraits TraitsOf(const Shard::Options& options);
ShardTraits TraitsOf(const Shard& shard);

}  // namespace tessera

#endif  // TESSERA_SERVER_SHARD_SHARD_TRAITS_H_
