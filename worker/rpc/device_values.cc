#include "worker/rpc/device_values.h"

namespace tessera {

absl::StatusOr<char*> DeviceValues::Receive(size_t server, int64_t bytes) {
  if (servers_.size() <= server) servers_.resize(server + 1);
  // gRPC's bytes go to memory that the device can read directly.
  TESSERA_RETURN_IF_ERROR(Grow(device_.memory(), /*on_host=*/true, bytes, &servers_[server].host));
  return servers_[server].host.data();
}

absl::Status DeviceValues::Write(size_t server, const CodedKeys& keys, const ShardSlices& slices,
                                 const ParameterArrays& values) {
  Server& from = servers_[server];
  Memory& memory = device_.memory();
  // f32 values are sent to where they belong, without a kernel.
  const bool as_they_lie = keys.codec() == Codec();
  if (!as_they_lie) {
    TESSERA_RETURN_IF_ERROR(Grow(memory, /*on_host=*/false, keys.bytes(), &from.bytes));
    memory.Send(from.host.data(), keys.bytes(), from.bytes.data());
  }
  EachCodedSlice(keys, slices, [&](const Slice& slice, const Segment& segment, int64_t byte) {
    float* const to = values[slice.parameter].data() + slice.row_begin * slice.columns;
    if (as_they_lie) {
      memory.Send(from.host.data() + byte, segment.bytes(), to);
    } else {
      device_.exchange().Decode(segment, from.bytes.data() + byte, to);
    }
  });
  return absl::OkStatus();
}

absl::Status DeviceValues::WriteSparse(size_t server, const CodedKeys& keys,
                                       const ShardSlices& slices,
                                       const std::shared_ptr<const SparseKeys>& sparse,
                                       const ParameterArrays& values) {
  Server& from = servers_[server];
  Memory& memory = device_.memory();
  // Entries are decoded side by side and then scattered to their places.
  TESSERA_RETURN_IF_ERROR(Grow(memory, /*on_host=*/false, keys.entries(), &from.entries));
  if (keys.codec() == Codec()) {
    memory.Send(from.host.data(), keys.bytes(), from.entries.data());
  } else {
    TESSERA_RETURN_IF_ERROR(Grow(memory, /*on_host=*/false, keys.bytes(), &from.bytes));
    memory.Send(from.host.data(), keys.bytes(), from.bytes.data());
    for (const Segment& segment : keys.segments()) {
      device_.exchange().Decode(segment, from.bytes.data(), from.entries.data());
    }
  }
  TESSERA_ASSIGN_OR_RETURN(const PlaceSet set, sets_->Of(server, sparse));
  for (const Slice& slice : slices.slices) {
    device_.exchange().Scatter(set, slice.offset, slice.offset + slice.size(), from.entries.data(),
                               values[slice.parameter].data() + slice.row_begin * slice.columns);
  }
  return absl::OkStatus();
}

}  // namespace tessera
