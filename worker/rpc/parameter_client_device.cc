// The parameter client where values belong into a device's memory.
#include <algorithm>
#include <limits>

#include "common/base/check.h"
#include "worker/rpc/parameter_client_grpc.h"

namespace tessera {

absl::Status ParameterClientGrpc::AddDevicePulls(const KeySet& keys,
                                                 const ParameterArrays& values) {
  // What was received before may be on its way still.
  if (absl::Status status = device_values_->Finish(); !status.ok()) {
    tasks_.clear();
    return status;
  }
  device_pull_ = &keys;
  sparse_pull_ = keys.is_sparse() ? &keys : nullptr;
  pulled_arrays_ = &values;
  const CodingOptions& coding = options_.coding;
  for (size_t part = 0; part < keys.slices.size(); ++part) {
    const size_t s = replicated() ? options_.home : part;
    // Without a server beside it this worker is no member any more, which its lease will say.
    if (replicated() && (s >= servers_.size() || servers_[s].life == 0)) continue;
    Server& server = servers_[s];
    server.value_keys.reset();
    if (keys.is_sparse()) {
      const SparseKeys& sparse = *keys.sparse[part];
      server.value_keys.emplace(
          *CodedForms::OfEntries(coding.codecs, sparse.entries.count(), sparse.on_all)
               .Find(coding.codecs.pull));
    } else {
      server.value_keys.emplace(coding.codecs.pull, keys.slices[part], coding.shape);
    }
    const absl::StatusOr<char*> room = device_values_->Receive(s, server.value_keys->bytes());
    if (!room.ok()) {
      tasks_.clear();
      device_pull_ = nullptr;
      sparse_pull_ = nullptr;
      return room.status();
    }
    server.received = *room;
    AddTask(s, /*is_push=*/false);
  }
  return absl::OkStatus();
}

absl::Status ParameterClientGrpc::WriteDeviceValues(size_t server) {
  const KeySet& keys = *device_pull_;
  const size_t part = replicated() ? 0 : server;
  const CodedKeys& coded = *servers_[server].value_keys;
  if (keys.is_sparse()) {
    return device_values_->WriteSparse(server, coded, keys.slices[part], keys.sparse[part],
                                       *pulled_arrays_);
  }
  return device_values_->Write(server, coded, keys.slices[part], *pulled_arrays_);
}

void ParameterClientGrpc::WatchValues(ValueSink* sink, const KeySet& keys) {
  const bool as_they_lie =
      options_.coding.codecs.pull == Codec() && device_pull_ == nullptr && !keys.is_sparse();
  if (!as_they_lie) sink = nullptr;
  int parameters = 0;
  for (const ShardSlices& part : keys.slices) {
    if (!part.slices.empty()) parameters = std::max(parameters, part.slices.back().parameter + 1);
  }
  const auto first = static_cast<size_t>(keys.layers.has_value() ? keys.layers->begin : 0);
  watch_.Begin(sink, keys.slices, first, static_cast<size_t>(parameters));
  written_.assign(keys.slices.size(), 0);
}

void ParameterClientGrpc::TellValues() {
  for (const Task& task : tasks_) {
    if (task.is_push) continue;
    int64_t& written = written_[replicated() ? 0 : task.server];
    if (task.done) {
      written = std::numeric_limits<int64_t>::max();
    } else {
      written = task.call == nullptr ? 0 : task.pull->written();
    }
  }
  watch_.Tell(written_);
}

}  // namespace tessera
