// The parameter client where values belong into a device's memory.
#include "common/base/check.h"
#include "worker/rpc/parameter_client_grpc.h"

namespace tessera {

absl::Status ParameterClientGrpc::AddDevicePulls(const KeySet& keys,
                                                 const ParameterArrays& values) {
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
      const int64_t count = keys.sparse[part]->entries.count();
      server.value_keys.emplace(
          *CodedForms::OfEntries(coding.codecs, count).Find(coding.codecs.pull));
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
    tasks_.emplace_back();
    tasks_.back().server = s;
  }
  return absl::OkStatus();
}

absl::Status ParameterClientGrpc::WriteDeviceValues() {
  const KeySet& keys = *device_pull_;
  for (size_t part = 0; part < keys.slices.size(); ++part) {
    const size_t s = replicated() ? options_.home : part;
    if (s >= servers_.size() || !servers_[s].value_keys.has_value()) continue;
    const CodedKeys& coded = *servers_[s].value_keys;
    if (keys.is_sparse()) {
      TESSERA_RETURN_IF_ERROR(device_values_->WriteSparse(s, coded, keys.slices[part],
                                                          keys.sparse[part], *pulled_arrays_));
    } else {
      TESSERA_RETURN_IF_ERROR(device_values_->Write(s, coded, keys.slices[part], *pulled_arrays_));
    }
  }
  return device_values_->Finish();
}

}  // namespace tessera
