#include "server/shard/shard_state.h"

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "common/checkpoint/manifest.h"
#include "server/shard/forms/core_exchange.h"
#include "server/shard/forms/form_table.h"
#include "server/shard/stored_values.h"

namespace tessera {
namespace {

// What workers say may be wrong, but a checkpoint of it has to be read again.
// Saturates below the end of what a checkpoint may hold, where a sum of two would reach it.
uint64_t SavedSum(uint64_t a, uint64_t b) {
  return b < kSavedCountEnd - 1 && a < kSavedCountEnd - 1 - b ? a + b : kSavedCountEnd - 1;
}

ShardLimits LimitsOf(const ShardOptions& options, const ShardTraits& traits) {
  if (options.limits.has_value()) return *options.limits;
  return PlanShardMemory({&traits.shape, traits.slices, 0, 1, nullptr}).limits;
}

}  // namespace

ShardState::ShardState(ShardOptions options)
    : traits(TraitsOf(options)),
      is_replica(options.placement == Placement::kReplicated),
      policy(std::move(options.policy)),
      rule(std::move(options.rule)),
      schedule(std::move(options.schedule)),
      limits(LimitsOf(options, traits)),
      store(traits.slices, std::max(limits.copy_bytes, kBlockBytes)),
      members(policy.get(), is_replica),
      stage(policy.get(), &members.plan(), limits.staging_bytes, traits.slices.bytes()) {
  // A core is selected from the initial values at once.
  if (!options.awaits_load || options.core) {
    // Values that are loaded replace these, whatever they are.
    const InitialFile* const file = options.awaits_load ? nullptr : options.initial_file.get();
    initial = FillInitial({traits.shape, traits.seed, file}, traits.slices, &store);
    counters.initial_hash = HashOf(store, traits.slices);
  }
  // Forms see members through these functions only, and cannot change them.
  FormContext context;
  context.traits = &traits;
  context.policy = policy.get();
  context.rule = rule.get();
  context.plan = &members.plan();
  context.store = &store;
  context.kind = options.kind;
  context.whole_kind = options.whole_kind;
  context.is_replica = is_replica;
  context.begun = [this] {
    absl::flat_hash_set<MemberId> begun;
    for (const auto& [id, member] : members.states()) {
      if (member.folded >= member.first) begun.insert(id);
    }
    return begun;
  };
  context.next = [this] {
    absl::flat_hash_map<MemberId, Exchange> next;
    for (const auto& [id, member] : members.states()) next[id] = member.accepted.Next();
    return next;
  };
  form = MakeForm(context, options);
}

// Replicas have no standbys, and without a barrier there is no sum that all members are in.
bool ShardState::CombinesPushes() const {
  return policy->Collecting() != Exchange(0) && form->sums_pushes() && !is_replica;
}

bool ShardState::IsAsMade() const {
  return !is_loaded && members.plan().generation == Generation() && counters.version == Version();
}

Verdict ShardState::BeginFold(const PushFacts& push, bool has_base) {
  // A push from a peer has no base here: staleness would compare versions of two replicas.
  if (has_base) {
    const uint64_t staleness = push.now.value() - push.base.value();
    ++counters.staleness[std::min<uint64_t>(staleness, counters.staleness.size() - 1)];
    counters.staleness_sum = SavedSum(counters.staleness_sum, staleness);
    counters.staleness_max = std::max(counters.staleness_max, staleness);
  }
  // Examples count once the update is committed, so that schedules and checkpoints go by what is in the parameters.
  pending_examples += push.examples;
  ++open_folds;
  return policy->OnPush(push);
}

Update ShardState::BeginCommit(float scale) {
  counters.version = counters.version.Next();
  Update update;
  update.scale = scale;
  update.number = counters.version.value();
  // The schedule sees the examples before this update and its own, so that a warm-up reaches 1 with its last one.
  update.rate = static_cast<float>(schedule.Factor(counters.examples, pending_examples));
  counters.examples = SavedSum(counters.examples, pending_examples);
  pending_examples = 0;
  open_folds = 0;
  return update;
}

ReadResult ShardState::ReadNow() {
  const CoreExchange* const cores = form->cores();
  return {store.TakeSnapshot(),
          counters.version,
          counters.examples,
          cores == nullptr ? 0 : cores->cores(),
          {},
          members.plan().generation,
          nullptr};
}

}  // namespace tessera
