// What is known of a shard before it is made, and stays so whatever is restored in its place.
#ifndef TESSERA_SERVER_SHARD_SHARD_TRAITS_H_
#define TESSERA_SERVER_SHARD_SHARD_TRAITS_H_

#include <cstdint>
#include <memory>

#include "common/codec/codec.h"
#include "common/layout/parameters.h"
#include "common/layout/shard_map.h"
#include "server/shard/forms/job_keys.h"

namespace tessera {

// Constant; any thread.
struct ShardTraits {
  ModelShape shape;
  ShardSlices slices;
  uint64_t layout_hash = 0;
  uint64_t seed = 0;
  CodecChoice codecs;
  // What pushes and pulls are of.
  std::shared_ptr<const JobKeys> keys;

  // All entries, as pushes and pulls have them.
  const CodedForms& dense_forms() const { return keys->dense()->forms(); }
};

}  // namespace tessera

#endif  // TESSERA_SERVER_SHARD_SHARD_TRAITS_H_
