#include "deploy/simulate/simulated_values.h"

#include <algorithm>
#include <cstring>
#include <memory>

#include "common/base/check.h"
#include "common/rpc/chunk.h"
#include "server/rpc/answer_payload.h"
#include "server/shard/block_walk.h"
#include "server/shard/forms/core_exchange.h"
#include "server/shard/forms/site_subnet.h"
#include "worker/rpc/value_writer.h"

namespace tessera {

const ShardSlices& SimulatedValues::Slices(size_t server) const {
  return keys_->is_part() ? keys_->slices[server] : *shards_[server];
}

int64_t SimulatedValues::Take(size_t server, const ReadResult& result, ServerAnswer* answer) const {
  answer->version = result.version;
  answer->job_examples = result.examples;
  answer->plan = result.plan;
  answer->cores = result.cores;
  if (result.entries == nullptr) {
    // The core is not known, or exchanges are of all entries by now.
    answer->needs_all = keys_->is_sparse();
    answer->is_whole = keys_->subnet.has_value();
    return 0;
  }
  const ExchangedEntries& entries = *result.entries;
  if (keys_->subnet.has_value()) {
    // As server/rpc/pull_call.cc answers a fetch: values where the cut is the one asked for.
    const SubnetPlace place = static_cast<const SiteSubnet&>(entries).place();
    if (!(place == *keys_->subnet)) answer->recut = place;
    if (answer->recut.has_value() || keys_->waits_only) return 0;
  }
  if (entries.is_nothing()) return 0;
  // A core's and an explorer's entries are written as their codec's forms say, f32 included.
  const CodedKeys* const coded =
      is_coded() || keys_->is_sparse() ? entries.forms().Find(options_.codecs.pull) : nullptr;
  const int64_t bytes =
      coded != nullptr ? coded->bytes() : entries.count() * static_cast<int64_t>(sizeof(float));
  // Stub learners look at no values.
  if (!options_.moves_values) return bytes;
  if (keys_->is_sparse()) {
    WriteSparse(server, *coded, result);
  } else if (coded != nullptr) {
    ValueRuns runs;
    runs.Assign(Slices(server), *values_);
    WriteCoded(server, *coded, &runs, result);
  } else if (keys_->subnet.has_value()) {
    WriteSubnet(server, result);
  } else {
    CopyValues(Slices(server), result.snapshot, entries.run()->begin);
  }
  return bytes;
}

void SimulatedValues::WriteSubnet(size_t server, const ReadResult& result) const {
  SubnetGather gather(std::static_pointer_cast<const SiteSubnet>(result.entries), result.snapshot);
  for (const Slice& slice : Slices(server).slices) gather.Next(slice.size(), PlaceOf(slice));
  TESSERA_CHECK(gather.left() == 0);
}

void SimulatedValues::WriteSparse(size_t server, const CodedKeys& keys,
                                  const ReadResult& result) const {
  const EntrySet& entries = static_cast<const SparsePlace&>(*result.entries).keys().entries;
  std::vector<float> values(entries.count());
  ValueRuns runs;
  runs.Assign(EntriesAsSlices(entries.count()), {absl::MakeSpan(values)});
  WriteCoded(server, keys, &runs, result);
  const float* next = values.data();
  for (const Slice& slice : shards_[server]->slices) {
    next +=
        ScatterEntries(entries, slice.offset, slice.offset + slice.size(), next, PlaceOf(slice));
  }
}

void SimulatedValues::WriteCoded(size_t server, const CodedKeys& keys, ValueRuns* runs,
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

void SimulatedValues::CopyValues(const ShardSlices& slices,
                                 const std::shared_ptr<const Snapshot>& snapshot,
                                 int64_t begin) const {
  BlockWalk walk(snapshot, begin);
  for (const Slice& slice : slices.slices) {
    float* to = PlaceOf(slice);
    for (int64_t left = slice.size(); left > 0;) {
      const int64_t run = std::min(left, walk.run());
      std::memcpy(to, walk.data(), static_cast<size_t>(run) * sizeof(float));
      walk.Skip(run);
      to += run;
      left -= run;
    }
  }
}

}  // namespace tessera
