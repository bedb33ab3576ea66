#include "worker/rpc/incoming_values.h"

#include <algorithm>
#include <utility>

#include "common/base/check.h"

namespace tessera {

IncomingValues::IncomingValues(CodingOptions coding, std::vector<ShardSlices> slices,
                               std::unique_ptr<DeviceValues> device)
    : coding_(std::move(coding)), slices_(std::move(slices)), device_(std::move(device)) {}

absl::Status IncomingValues::Begin(const KeySet& keys, const ParameterArrays& values,
                                   bool outside) {
  // Values outside of exchanges come to the host, as evaluations and checkpoints want them there.
  is_devices_ = device_ != nullptr && !outside;
  // What was received before may be on its way still.
  if (is_devices_) TESSERA_RETURN_IF_ERROR(device_->Finish());
  keys_ = &keys;
  values_ = &values;
  is_outside_ = outside;
  return absl::OkStatus();
}

IncomingValues::Place& IncomingValues::PlaceOf(size_t server) {
  if (places_.size() <= server) places_.resize(server + 1);
  places_[server].keys.reset();
  return places_[server];
}

absl::Status IncomingValues::Await(size_t server, size_t part) {
  Place& place = PlaceOf(server);
  place.part = part;
  const Codec& codec = coding_.codecs.pull;
  // On a device f32 counts as coded, as it comes in one piece and is then distributed.
  const bool is_coded = !is_outside_ && (is_devices_ || codec != Codec());
  if (is_coded && is_sparse()) {
    const SparseKeys& sparse = *keys_->sparse[part];
    place.keys.emplace(
        *CodedForms::OfEntries(coding_.codecs, sparse.entries.count(), sparse.on_all).Find(codec));
  } else if (is_coded) {
    place.keys.emplace(codec, keys_->slices[part], coding_.shape);
  }
  if (is_devices_) {
    absl::StatusOr<char*> room = device_->Receive(server, place.keys->bytes());
    // No memory: nothing was asked for yet.
    if (!room.ok()) {
      End(/*has_values=*/false);
      return room.status();
    }
    place.received = *room;
  } else if (is_sparse()) {
    // Entries come side by side, and go to their places once all are there.
    const int64_t entries = keys_->sparse[part]->entries.count();
    place.entries.resize(entries);
    place.runs.Assign(EntriesAsSlices(entries), {absl::MakeSpan(place.entries)});
  } else {
    place.runs.Assign(keys_->slices[part], *values_);
  }
  return absl::OkStatus();
}

void IncomingValues::AwaitSlices(size_t server, const ShardSlices& slices,
                                 const ParameterArrays& values) {
  PlaceOf(server).runs.Assign(slices, values);
}

void IncomingValues::Watch(ValueSink* sink) {
  // Only values that are written to their places as they come may be told of piece by piece.
  const bool as_they_lie = coding_.codecs.pull == Codec() && !is_devices_ && !is_sparse();
  if (!as_they_lie) sink = nullptr;
  int parameters = 0;
  for (const ShardSlices& part : keys_->slices) {
    if (!part.slices.empty()) parameters = std::max(parameters, part.slices.back().parameter + 1);
  }
  const auto first = static_cast<size_t>(keys_->layers.has_value() ? keys_->layers->begin : 0);
  watch_.Begin(sink, keys_->slices, first, static_cast<size_t>(parameters));
}

ValueWriter IncomingValues::Writer(size_t server) {
  Place& place = places_[server];
  if (is_devices_) return ValueWriter(place.received, place.keys->bytes());
  // A repeated attempt begins from the first byte.
  place.runs.Rewind();
  return ValueWriter(&place.runs, place.keys ? &*place.keys : nullptr);
}

const Core* IncomingValues::core(size_t server) const {
  return is_sparse() ? keys_->sparse[places_[server].part]->core.get() : nullptr;
}

absl::Status IncomingValues::OnAnswer(size_t server) {
  // The device's kernels and copies are queued when a server's answer is complete, beside those still on their way.
  if (!is_devices_) return absl::OkStatus();
  const Place& place = places_[server];
  const ShardSlices& slices = keys_->slices[place.part];
  if (is_sparse()) {
    return device_->WriteSparse(server, *place.keys, slices, keys_->sparse[place.part], *values_);
  }
  return device_->Write(server, *place.keys, slices, *values_);
}

void IncomingValues::End(bool has_values) {
  // At the end, so that an exchange that failed has changed nothing.
  if (has_values && is_sparse() && !is_devices_) Scatter();
  watch_.End();
  keys_ = nullptr;
  values_ = nullptr;
  is_devices_ = false;
}

void IncomingValues::Scatter() {
  for (size_t part = 0; part < slices_.size(); ++part) {
    const EntrySet& entries = keys_->sparse[part]->entries;
    const float* next = places_[part].entries.data();
    for (const Slice& slice : slices_[part].slices) {
      next += ScatterEntries(entries, slice.offset, slice.offset + slice.size(), next,
                             (*values_)[slice.parameter].data() + slice.row_begin * slice.columns);
    }
  }
}

}  // namespace tessera
