// The parameter client where exchanges move a core and an explorer.
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/rpc/key_set_message.h"
#include "worker/rpc/parameter_client_grpc.h"

namespace tessera {

void ParameterClientGrpc::AddSparsePull(size_t s, const SparseKeys& keys) {
  const EntrySet& entries = keys.entries;
  Server& server = servers_[s];
  server.entries.resize(entries.count());
  AddPull(s, EntriesAsSlices(entries.count()), {absl::MakeSpan(server.entries)});
  const Codec& codec = options_.coding.codecs.pull;
  if (codec == Codec()) return;
  const CodedForms forms =
      CodedForms::OfEntries(options_.coding.codecs, entries.count(), keys.on_all);
  server.value_keys.emplace(*forms.Find(codec));
}

void ParameterClientGrpc::ScatterValues() {
  for (size_t s = 0; s < servers_.size(); ++s) {
    const EntrySet& entries = sparse_pull_->sparse[s]->entries;
    const float* values = servers_[s].entries.data();
    for (const Slice& slice : options_.slices[s].slices) {
      values += ScatterEntries(
          entries, slice.offset, slice.offset + slice.size(), values,
          (*sparse_values_)[slice.parameter].data() + slice.row_begin * slice.columns);
    }
  }
}

absl::Status ParameterClientGrpc::AddKeys(size_t s) {
  Server& server = servers_[s];
  if (sparse_push_ == nullptr || server.sends_keys) {
    return absl::InternalError(absl::StrCat("server ", s, " at ", server.address,
                                            ": wants the keys of a core that came with the push"));
  }
  server.sends_keys = true;
  const EncodedKeys keys = EncodeKeys(sparse_push_->sparse[s]->core->keys);
  server.payload = PrefixedUpdate(keys.bytes, std::move(server.payload));
  return absl::OkStatus();
}

void ParameterClientGrpc::NameCore(size_t s) {
  const Core& core = *sparse_push_->sparse[s]->core;
  v1::SparseKeys& keys = *requests_.push()->mutable_keys()->mutable_sparse();
  keys = ToMessage(core.name);
  if (!servers_[s].sends_keys) return;
  const EncodedKeys encoded = EncodeKeys(core.keys);
  keys.set_keys_bytes(encoded.bytes.size());
  keys.set_key_form(static_cast<uint32_t>(encoded.form));
}

}  // namespace tessera
