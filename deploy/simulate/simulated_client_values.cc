// SimulatedClient: what a server's answer brings, in the learner's arrays.
#include <cstring>
#include <utility>
#include <vector>

#include "common/base/check.h"
#include "common/rpc/chunk.h"
#include "deploy/simulate/simulated_client.h"
#include "server/shard/forms/core_exchange.h"
#include "server/shard/forms/site_subnet.h"
#include "worker/rpc/value_writer.h"

namespace tessera {

// As server/rpc/pull_call.cc answers a fetch, and worker/rpc takes it: values where the cut is the
// one asked for, and the right one where it is not.
void SimulatedClient::TakeCut(size_t server, const ReadResult& result) {
  const KeySet& keys = *transfer_.value_keys;
  const auto site = std::static_pointer_cast<const SiteSubnet>(result.entries);
  const bool is_right = site->place() == *keys.subnet;
  const bool has_values = is_right && !keys.waits_only;
  if (!is_right) recut_ = site->place();
  ExchangeSizes& sizes = servers_[server].sizes;
  sizes.pull_payload_bytes = has_values ? site->bytes() : 0;
  if (has_values && codes_pulls()) TakeCoded(server, keys.slices[server], result);
  sizes.pull_wire_bytes = AnswerWireBytes(site.get(), sizes.pull_payload_bytes);
  if (!has_values || !options_.moves_values || codes_pulls()) return;
  SubnetGather gather(site, result.snapshot);
  for (const Slice& slice : keys.slices[server].slices) {
    gather.Next(slice.size(), PlaceOf(slice, (*transfer_.values)[slice.parameter]));
  }
  TESSERA_CHECK(gather.left() == 0);
}

void SimulatedClient::TakeSparse(size_t server, const ReadResult& result) {
  ExchangeSizes& sizes = servers_[server].sizes;
  const EntrySet& entries = static_cast<const SparsePlace&>(*result.entries).keys().entries;
  const CodedKeys& keys = *result.entries->forms().Find(options_.codecs.pull);
  sizes.pull_payload_bytes = keys.bytes();
  sizes.pull_wire_bytes = AnswerWireBytes(nullptr, keys.bytes());
  if (!options_.moves_values) return;
  std::vector<float> values(entries.count());
  ValueRuns runs;
  runs.Assign(EntriesAsSlices(entries.count()), {absl::MakeSpan(values)});
  WriteCoded(server, keys, &runs, result);
  const float* next = values.data();
  for (const Slice& slice : servers_[server].server->shard().slices().slices) {
    next += ScatterEntries(entries, slice.offset, slice.offset + slice.size(), next,
                           PlaceOf(slice, (*transfer_.values)[slice.parameter]));
  }
}

// As server/rpc/pull_call.cc answers: of entries that are one run, which may be nothing at all.
void SimulatedClient::TakeRun(size_t server, const ShardSlices& slices, const ReadResult& result) {
  if (result.entries->is_nothing()) return;
  if (codes_pulls()) {
    TakeCoded(server, slices, result);
  } else if (options_.moves_values) {
    CopyValues(slices, *result.snapshot, result.entries->run()->begin);
  }
}

void SimulatedClient::TakeCoded(size_t server, const ShardSlices& slices,
                                const ReadResult& result) {
  const CodedKeys& keys = *result.entries->forms().Find(options_.codecs.pull);
  ExchangeSizes& sizes = servers_[server].sizes;
  sizes.pull_payload_bytes = keys.bytes();
  sizes.pull_wire_bytes = AnswerWireBytes(nullptr, sizes.pull_payload_bytes);
  if (!options_.moves_values) return;
  ValueRuns runs;
  runs.Assign(slices, *transfer_.values);
  WriteCoded(server, keys, &runs, result);
}

void SimulatedClient::WriteCoded(size_t server, const CodedKeys& keys, ValueRuns* runs,
                                 const ReadResult& result) const {
  const std::unique_ptr<AnswerPayload> payload =
      CodedPayload(keys, PayloadRandom::OfValues(options_.seed, result.version, ShardId(server)),
                   result.entries->Source(result.snapshot));
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
