// SimulatedClient: what a server's answer brings, in the learner's arrays.
#include <cstring>
#include <utility>
#include <vector>

#include "common/base/check.h"
#include "common/rpc/chunk.h"
#include "deploy/simulate/simulated_client.h"
#include "server/shard/layer_parts.h"
#include "worker/rpc/value_writer.h"

namespace tessera {

// Takes the answer to a fetch, which server/rpc/pull_call.cc gives: values where the cut is the one that was asked
// for, and the right cut where it is not.
void SimulatedClient::TakeCut(size_t server, const ServedRead& result) {
  const KeySet& keys = *transfer_.value_keys;
  const bool is_right = result.site->place() == *keys.subnet;
  const bool has_values = is_right && !keys.waits_only;
  if (!is_right) recut_ = result.site->place();
  ExchangeSizes& sizes = servers_[server].sizes;
  sizes.pull_payload_bytes = has_values ? result.site->bytes() : 0;
  sizes.pull_wire_bytes = AnswerWireBytes(result.site.get(), sizes.pull_payload_bytes);
  if (has_values && codes_pulls()) {
    TakeCoded(server, *result.site->forms().Find(options_.codecs.pull), result.read.version,
              keys.slices[server], SubnetSource(result.site, result.read.snapshot));
    sizes.pull_wire_bytes = AnswerWireBytes(result.site.get(), sizes.pull_payload_bytes);
    return;
  }
  if (!has_values || !options_.moves_values) return;
  SubnetGather gather(result.site, result.read.snapshot);
  for (const Slice& slice : keys.slices[server].slices) {
    gather.Next(slice.size(), PlaceOf(slice, (*transfer_.values)[slice.parameter]));
  }
  TESSERA_CHECK(gather.left() == 0);
}

void SimulatedClient::TakeSparse(size_t server, const ServedRead& result) {
  ExchangeSizes& sizes = servers_[server].sizes;
  sizes.pull_payload_bytes = 0;
  sizes.pull_wire_bytes = AnswerWireBytes(nullptr, 0);
  needs_all_ = needs_all_ || result.place == nullptr;
  if (result.place == nullptr) return;
  const EntrySet& entries = result.place->keys.entries;
  const CodedKeys& keys = *result.place->forms.Find(options_.codecs.pull);
  sizes.pull_payload_bytes = keys.bytes();
  sizes.pull_wire_bytes = AnswerWireBytes(nullptr, keys.bytes());
  if (!options_.moves_values) return;
  std::vector<float> values(entries.count());
  ValueRuns runs;
  runs.Assign(EntriesAsSlices(entries.count()), {absl::MakeSpan(values)});
  WriteCoded(server, keys, result.read.version, &runs,
             SparseSource(result.place, result.read.snapshot));
  const float* next = values.data();
  for (const Slice& slice : servers_[server].server->shard().slices().slices) {
    next += ScatterEntries(entries, slice.offset, slice.offset + slice.size(), next,
                           PlaceOf(slice, (*transfer_.values)[slice.parameter]));
  }
}

// Takes an answer of half of the layers, as server/rpc/pull_call.cc gives it. For no entries nothing is sent,
// whatever the codec.
void SimulatedClient::TakeLayers(size_t server, const ServedRead& result) {
  const ShardSlices& slices = transfer_.value_keys->slices[server];
  if (slices.size == 0) return;
  const LayerPart& part =
      *servers_[server].server->shard().layer_parts()->Find(*transfer_.value_keys->layers);
  if (codes_pulls()) {
    TakeCoded(server, *part.forms.Find(options_.codecs.pull), result.read.version, slices,
              DenseSource(result.read.snapshot, part.begin));
  } else if (options_.moves_values) {
    CopyValues(slices, *result.read.snapshot, part.begin);
  }
}

void SimulatedClient::TakeCoded(size_t server, const CodedKeys& keys, Version version,
                                const ShardSlices& slices, std::unique_ptr<EntrySource> source) {
  ExchangeSizes& sizes = servers_[server].sizes;
  sizes.pull_payload_bytes = keys.bytes();
  sizes.pull_wire_bytes = AnswerWireBytes(nullptr, sizes.pull_payload_bytes);
  if (!options_.moves_values) return;
  ValueRuns runs;
  runs.Assign(slices, *transfer_.values);
  WriteCoded(server, keys, version, &runs, std::move(source));
}

void SimulatedClient::WriteCoded(size_t server, const CodedKeys& keys, Version version,
                                 ValueRuns* runs, std::unique_ptr<EntrySource> source) const {
  const std::unique_ptr<AnswerPayload> payload = CodedPayload(
      keys, PayloadRandom::OfValues(options_.seed, version, ShardId(server)), std::move(source));
  ValueWriter writer(runs, &keys);
  while (payload->left() > 0) {
    for (const grpc::Slice& slice : payload->Next(kChunkBytes)) {
      writer.Write(reinterpret_cast<const char*>(slice.begin()),
                   static_cast<int64_t>(slice.size()));
    }
  }
}

void SimulatedClient::CopyValues(const ShardSlices& slices, const Snapshot& snapshot,
                                 int64_t begin) const {
  auto block = snapshot.blocks().begin();
  // A block lies within one slice.
  for (; begin > 0; ++block) begin -= static_cast<int64_t>((*block)->size());
  for (const Slice& slice : slices.slices) {
    float* to = PlaceOf(slice, (*transfer_.values)[slice.parameter]);
    for (int64_t left = slice.size(); left > 0; ++block) {
      std::memcpy(to, (*block)->data(), (*block)->size() * sizeof(float));
      to += (*block)->size();
      left -= (*block)->size();
    }
  }
}

}  // namespace tessera
