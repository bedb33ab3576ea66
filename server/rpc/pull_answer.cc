#include "server/rpc/pull_answer.h"

#include <utility>

#include "common/keyset/entry_keys.h"
#include "common/rpc/key_set_message.h"
#include "server/rpc/replica_table_message.h"

namespace tessera {
namespace {

PullAnswer Begin(ReadResult read, const ShardTraits& traits) {
  PullAnswer answer;
  answer.header.set_version(read.version.value());
  answer.header.set_layout_hash(traits.layout_hash);
  answer.header.set_examples(read.examples);
  answer.header.set_plan_generation(read.plan.value());
  answer.header.set_cores(read.cores);
  answer.header.set_checkpoint_number(read.checkpoint.number);
  answer.header.set_checkpoint_step(read.checkpoint.folder_step);
  answer.snapshot = std::move(read.snapshot);
  return answer;
}

std::unique_ptr<AnswerPayload> PayloadOf(const ExchangedEntries& entries, const Codec& codec,
                                         Version version, const ShardTraits& traits,
                                         const std::shared_ptr<const Snapshot>& snapshot) {
  const std::optional<EntryRun> run = entries.run();
  // f32 of a run is sent from where the shard has it, without a copy.
  if (codec == Codec() && run) return DensePayload(snapshot, run->begin, entries.count());
  if (codec == Codec()) return GatheredPayload(entries.count(), entries.Source(snapshot));
  return CodedPayload(*entries.forms().Find(codec),
                      PayloadRandom::OfValues(traits.seed, version, traits.slices.shard),
                      entries.Source(snapshot));
}

}  // namespace

PullAnswer AnswerOf(ReadResult read, const NamedKeys& asked, const Codec& codec,
                    const ShardTraits& traits) {
  const std::shared_ptr<const ExchangedEntries> entries = std::move(read.entries);
  const Version version = read.version;
  PullAnswer answer = Begin(std::move(read), traits);
  // Where the shard's own keys are others than were asked for, the header says so and no values follow.
  const NamedKeys own = entries == nullptr ? NamedKeys(UnknownKeys()) : entries->name();
  const bool is_asked = SetAnswered(asked, own, &answer.header);
  if (is_asked) answer.payload = PayloadOf(*entries, codec, version, traits, answer.snapshot);
  return answer;
}

PullAnswer AnswerOf(ReplicaCopy copy, const ShardTraits& traits) {
  // A copy is exact, whatever codec pulls have.
  copy.read.entries = traits.keys->dense();
  PullAnswer answer = AnswerOf(std::move(copy.read), AllEntries(), Codec(), traits);
  *answer.header.mutable_replica() = ToMessage(copy.table);
  return answer;
}

PullAnswer AnswerOf(const Core& core, const ShardTraits& traits) {
  ReadResult nothing;
  nothing.snapshot = std::make_shared<const Snapshot>();
  // Keys are no values: no version goes with them.
  PullAnswer answer = Begin(std::move(nothing), traits);
  EncodedKeys keys = EncodeKeys(core.keys);
  v1::SparseKeys& message = *answer.header.mutable_core();
  message = ToMessage(core.name);
  message.set_key_form(static_cast<uint32_t>(keys.form));
  message.set_keys_bytes(keys.bytes.size());
  answer.payload = BytesPayload(std::move(keys.bytes));
  return answer;
}

}  // namespace tessera
