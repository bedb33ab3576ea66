#include "worker/rpc/pushed_update.h"

#include <utility>

#include "common/base/check.h"
#include "common/rpc/key_set_message.h"

namespace tessera {

absl::Status PushedUpdate::Begin(const OutgoingPush& push, const KeySet& keys,
                                 const ConstParameterArrays& update) {
  TESSERA_RETURN_IF_ERROR(coder_->Begin(push, keys, update));
  // Keys of a core are sent by name, and in full only where a server wants them.
  keys_ = keys.is_sparse() ? &keys : nullptr;
  return absl::OkStatus();
}

void PushedUpdate::Make(size_t server, size_t part, size_t servers) {
  // Payloads refer to their runs.
  if (parts_.size() < servers) parts_.resize(servers);
  parts_[server].payload = coder_->Make(part, &parts_[server].runs);
  parts_[server].has_keys = false;
}

UpdatePayload* PushedUpdate::Payload(size_t server) {
  UpdatePayload* const payload = parts_[server].payload.get();
  payload->Rewind();
  return payload;
}

bool PushedUpdate::AddKeys(size_t server) {
  Part& part = parts_[server];
  // A server that wants keys twice is wrong.
  if (keys_ == nullptr || part.has_keys) return false;
  part.has_keys = true;
  // Keys stand in front of the values, in one payload.
  part.payload =
      PrefixedUpdate(EncodeKeys(keys_->sparse[server]->core->keys).bytes, std::move(part.payload));
  return true;
}

void PushedUpdate::NameCore(size_t server, v1::PushHeader* header) const {
  if (keys_ == nullptr) return;
  const Core& core = *keys_->sparse[server]->core;
  v1::SparseKeys& message = *header->mutable_keys()->mutable_sparse();
  message = ToMessage(core.name);
  if (!parts_[server].has_keys) return;
  const EncodedKeys encoded = EncodeKeys(core.keys);
  message.set_keys_bytes(encoded.bytes.size());
  message.set_key_form(static_cast<uint32_t>(encoded.form));
}

}  // namespace tessera
