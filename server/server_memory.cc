#include "server/server_memory.h"

#include <algorithm>
#include <limits>
#include <optional>

#include "absl/strings/str_cat.h"
#include "common/config/checkpoint_keys.h"
#include "common/keyset/subnet.h"
#include "common/layout/shard_map.h"
#include "common/rpc/transport.h"
#include "server/shard/replica_copying.h"

namespace tessera {
namespace {

// The program itself, its libraries and its heap. Each worker's connection comes on top, both ways.
constexpr int64_t kProgramBytes = int64_t{36} << 20;

}  // namespace

std::string ServerMemory::Describe() const {
  return absl::StrCat(shard.Describe(), " + checkpoints ", checkpoint,
                      " + program and connections ", program,
                      windows.bytes() > 0 ? absl::StrCat(" + windows ", windows.bytes()) : "");
}

ServerMemory PlanServerMemory(const v1::Job& job, const Recipe& recipe, const ModelShape& shape,
                              int rank, int64_t bytes_max) {
  ShardNeeds needs;
  needs.shape = &shape;
  const auto servers = static_cast<int>(job.cluster().servers().count());
  needs.slices = SlicesOf(shape, ShardAt(recipe.placement, rank), ShardingOf(recipe, servers));
  needs.state_count = recipe.make_rule()->state_count();
  // What pushes of all entries have changed, once to add to and once for a selection to read; and a bit
  // for each entry of every worker's exchange, of the cores and the selection.
  if (recipe.core) {
    needs.state_count += 2 + static_cast<int>((2 * job.cluster().workers() + 8 + 31) / 32);
  }
  needs.workers = std::max<int64_t>(1, job.cluster().workers());
  std::optional<NeuronGroups> groups;
  int64_t push = needs.slices.bytes();
  // Exchanges of all entries, where a job of subnets ends with such, need the most.
  if (recipe.subnets && recipe.tail_steps == 0) {
    groups = GroupsOf(shape, recipe.subnet_rules);
    needs.groups = &*groups;
    if (recipe.parts_by_speed) needs.part = LargestPart(needs.workers);
    push = LargestPush(shape, *groups, needs.slices, needs.workers, needs.part);
  }
  ServerMemory memory;
  // Pushes come and fetches go by turns; what is sent has yet to leave when the other begins.
  memory.program = kProgramBytes + 2 * needs.workers * LimitedConnectionBytes(push);
  // Only what comes waits in a window: what goes lies in the shard's own blocks.
  memory.windows.Add(needs.workers, push);
  // A server with the whole model may have to copy another replica, and keep what comes meanwhile.
  if (recipe.placement == Placement::kReplicated) {
    memory.program += needs.slices.bytes() + kKeptBytesLeast;
    memory.windows.Add(1, needs.slices.bytes());
  }
  // A standby of another shard: parameters, states, and an update on its way, whole and in the message that brings
  // it; and here the sum of an update that the own standby has yet to have.
  if (job.cluster().replicas() > 0) {
    const ShardSlices other =
        SlicesOf(shape, ShardId((rank + servers - 1) % servers), ShardingOf(recipe, servers));
    memory.program +=
        other.bytes() * (3 + needs.state_count) + other.bytes() / 8 + needs.slices.bytes();
    memory.windows.Add(1, other.bytes());
  }
  // A checkpoint holds what the shard has replaced since, and a copy of the rule's states.
  if (!job.checkpoint().directory().empty()) {
    memory.checkpoint = needs.slices.bytes() * (1 + (needs.groups ? 0 : needs.state_count));
    // Pieces of others' files that wait for this server's disk.
    if (HasOwnDisks(job)) memory.checkpoint += kStoreBytesMax;
  }
  memory.shard = PlanShardMemory(needs, bytes_max - memory.program - memory.checkpoint);
  // Staging and copies come first: without them pushes wait whatever the network is.
  if (bytes_max < std::numeric_limits<int64_t>::max()) {
    memory.windows.Choose(bytes_max - memory.total());
  }
  return memory;
}

}  // namespace tessera
