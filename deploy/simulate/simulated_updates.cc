#include "deploy/simulate/simulated_updates.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "common/base/check.h"
#include "common/codec/arrival_check.h"
#include "common/codec/coded_keys.h"
#include "common/codec/selective_codec.h"
#include "common/rpc/chunk.h"

namespace tessera {

SimulatedUpdates::SimulatedUpdates(const SimulatedClientOptions* options,
                                   std::vector<const ShardTraits*> shards, bool moves_cores)
    : options_(*options), shards_(std::move(shards)), parts_(shards_.size()) {
  for (const ShardTraits* shard : shards_) dense_.slices.push_back(shard->slices);
  if (options_.is_replicated()) dense_.slices.resize(1);
  const CodecChoice& codecs = options_.codecs;
  // f32 updates are sent from the learner's own memory.
  if (codecs.push == Codec() && !codecs.holds_back() && !moves_cores) return;
  // Stub learners have no entries to select from: payloads have a size only.
  if (!options_.moves_values && codecs.push->selective() != nullptr) return;
  UpdateCoder::Options coding{codecs, shards_.front()->shape, options_.seed, options_.rank};
  coding.placement = options_.placement;
  coding.layers = options_.layers;
  coder_.emplace(std::move(coding));
}

void SimulatedUpdates::Begin(const OutgoingPush& push, const KeySet& keys,
                             const ConstParameterArrays& update) {
  push_ = push;
  keys_ = &keys;
  update_ = &update;
  if (!is_coded() || !coder_) return;
  // Learners without values of their own name no entries where all are meant.
  const bool names_entries = keys.is_part() || keys.is_sparse();
  TESSERA_CHECK(coder_->Begin(push_, names_entries ? keys : dense_, update).ok());
}

const ShardSlices& SimulatedUpdates::Slices(size_t server) const {
  return (keys_->is_part() ? *keys_ : dense_).slices[options_.part_of(server)];
}

int64_t SimulatedUpdates::Encode(size_t server) {
  Part& part = parts_[server];
  part.has_keys = false;
  part.payload = Payload();
  if (!is_coded()) return Slices(server).bytes();
  if (coder_) {
    UpdateRuns runs;
    const std::unique_ptr<UpdatePayload> payload = coder_->Make(options_.part_of(server), &runs);
    while (payload->left() > 0) {
      // Chunks as they would be sent, since a bucket may lie across two.
      for (const grpc::Slice& made : payload->Next(kChunkBytes, nullptr)) {
        const auto slice = std::make_shared<const grpc::Slice>(made);
        part.payload.Append(
            {reinterpret_cast<const char*>(slice->begin()), static_cast<int64_t>(slice->size())},
            slice);
      }
    }
    return payload->bytes();
  }
  if (Slices(server).size == 0) return 0;
  const SelectiveCodec& codec = *options_.codecs.push->selective();
  // An empty selection is a valid payload, whose size on the wire is said apart.
  const auto empty =
      std::make_shared<const std::vector<char>>(codec.NewSelector()->NewEncoder()->Finish());
  part.payload.Append({empty->data(), static_cast<int64_t>(empty->size())}, empty);
  const PayloadForecast forecast = codec.Forecast(Slices(server).size);
  if (forecast.certainty == PayloadForecast::Certainty::kExact) return forecast.bytes;
  // Whole entries are sent, in a word each.
  constexpr int64_t kWord = sizeof(uint32_t);
  return forecast.bytes / kWord * kWord;
}

int64_t SimulatedUpdates::AddKeys(size_t server) {
  TESSERA_CHECK(!parts_[server].has_keys);
  parts_[server].has_keys = true;
  return static_cast<int64_t>(EncodeKeys(keys_->sparse[server]->core->keys).bytes.size());
}

ReceivedPush SimulatedUpdates::Make(size_t server, Version base) {
  Part& part = parts_[server];
  ReceivedPush push;
  push.member = options_.member;
  push.exchange = push_.exchange;
  // Staleness counts at the worker's own server only.
  push.base = options_.is_peer(server) ? Version() : base;
  push.from_peer = options_.is_peer(server);
  push.kind = push_.kind ? static_cast<int>(*push_.kind) : options_.kind;
  push.whole_next = push_.whole_next;
  push.layout_hash = shards_[server]->layout_hash;
  push.examples = push_.examples;
  push.keys = keys_->On(options_.part_of(server));
  // What server/rpc/push_call.cc makes of the header.
  if (keys_->layers) push.summed = std::max<uint64_t>(1, push_.summed);
  if (keys_->is_sparse()) {
    AddSparse(server, &push);
    return push;
  }
  if (is_coded()) {
    push.codec = coder_ ? coder_->codec() : options_.codecs.push;
    push.payload = std::move(part.payload);
    // That of entries which only the shard knows is for the shard to find.
    const auto entries = shards_[server]->keys->OfPush(push.keys, push.summed);
    if (!entries.ok() || *entries == nullptr) return push;
    const CodedKeys* const keys = (*entries)->forms().Find(push.codec);
    if (keys != nullptr) push.bad_entry = FirstBadEntry(*keys, push.payload);
    return push;
  }
  const ShardSlices& slices = Slices(server);
  for (const Slice& slice : slices.slices) {
    const float* const data = (*update_)[slice.parameter].data() + slice.row_begin * slice.columns;
    const int64_t size = slice.size() * static_cast<int64_t>(sizeof(float));
    push.payload.Append({reinterpret_cast<const char*>(data), size}, nullptr);
  }
  // Stub values are finite.
  if (options_.moves_values) {
    push.bad_entry = FirstBadEntry(CodedKeys::Plain(push.codec, slices.size), push.payload);
  }
  return push;
}

void SimulatedUpdates::AddSparse(size_t server, ReceivedPush* push) const {
  const SparseKeys& keys = *keys_->sparse[server];
  push->codec = coder_->codec();
  if (parts_[server].has_keys) {
    EncodedKeys encoded = EncodeKeys(keys.core->keys);
    push->keys =
        NamedCore{keys.core->name, static_cast<int>(encoded.form), std::move(encoded.bytes)};
  }
  // The shard checks what other codecs have written.
  if (IsPlain(push->codec)) {
    push->bad_entry =
        FirstBadEntry(CodedKeys::Plain(push->codec, keys.entries.count()), parts_[server].payload);
  }
  // The payload may be wanted again, with the core's keys.
  push->payload = parts_[server].payload.Share();
}

}  // namespace tessera
