// What a shard is made of, by the job's recipe and the server's rank.
#ifndef TESSERA_SERVER_SHARD_SHARD_OPTIONS_H_
#define TESSERA_SERVER_SHARD_SHARD_OPTIONS_H_

#include <cstdint>
#include <memory>
#include <optional>

#include "common/base/ids.h"
#include "common/checkpoint/initial_file.h"
#include "common/codec/codec.h"
#include "common/consistency/policy.h"
#include "common/keyset/core_share.h"
#include "common/keyset/subnet.h"
#include "common/layout/layer_cut.h"
#include "common/layout/shard_map.h"
#include "common/rule/rule.h"
#include "common/rule/schedule.h"
#include "server/shard/shard_memory.h"

namespace tessera {

struct ShardOptions {
  ModelShape shape;
  ShardId shard;
  Sharding sharding;
  uint64_t seed = 0;
  // The values that the shard begins with, in place of those that follow from the seed; nullptr: those.
  std::shared_ptr<const InitialFile> initial_file;
  // The payload that the job's method sends, and how values are written.
  int kind = 0;
  CodecChoice codecs;
  // Replicated: `shard` is 0 of 1, and members advance on their own.
  Placement placement = Placement::kSharded;
  std::unique_ptr<ConsistencyPolicy> policy;
  std::unique_ptr<UpdateRule> rule;
  // How the rule's learning rate changes.
  RateSchedule schedule;
  // Set: the method trains subnets, under a barrier.
  std::optional<NeuronGroups> groups;
  // Beside groups: the payload of exchanges of all entries, where the job ends with such.
  std::optional<int> whole_kind;
  // Set: exchanges move a core and an explorer, but for every q-th push (core_exchange.h). The
  // rule keeps no state, and the push codec holds nothing back.
  std::optional<CoreShare> core;
  // Set: a push is of the layers on one side of it, under a barrier. Not beside groups, core or replicas.
  std::optional<LayerCut> cut;
  // Set: exchanges move so many fragments of the entries in turn, under a barrier. Not beside the others above.
  std::optional<int> fragments;
  // nullopt: those of PlanShardMemory where memory is not limited.
  std::optional<ShardLimits> limits;
  // Load comes next, before which the values may be any: initial ones need not be made.
  bool awaits_load = false;
};

}  // namespace tessera

#endif  // TESSERA_SERVER_SHARD_SHARD_OPTIONS_H_
