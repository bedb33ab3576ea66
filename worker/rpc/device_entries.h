// What an exchange's entries are on a device: the runs of a key set that are coded one by one, and the
// bits of a set of entries.
#ifndef TESSERA_WORKER_RPC_DEVICE_ENTRIES_H_
#define TESSERA_WORKER_RPC_DEVICE_ENTRIES_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/check.h"
#include "common/codec/coded_keys.h"
#include "common/keyset/sparse_keys.h"
#include "common/layout/shard_map.h"
#include "kernels/exchange.h"
#include "kernels/memory.h"
#include "kernels/place_ranks.h"

namespace tessera {

// Calls visit(slice, segment, byte) for each slice, whose entries are those of `segment` and begin at
// `byte` of the payload.
template <typename Visit>
void EachCodedSlice(const CodedKeys& keys, const ShardSlices& slices, Visit visit) {
  int64_t byte = 0;
  size_t next = 0;
  for (const Slice& slice : slices.slices) {
    Segment segment = keys.segments()[IsPlain(keys.codec()) ? 0 : next++];
    TESSERA_CHECK(IsPlain(keys.codec()) || segment.entries == slice.size());
    segment.entries = slice.size();
    visit(slice, segment, byte);
    byte += segment.bytes();
  }
}

// Makes the buffer at least so large. It never shrinks, and where it grows its old contents are gone.
template <typename T>
absl::Status Grow(Memory& memory, bool on_host, int64_t size, Buffer<T>* buffer) {
  if (buffer->size() >= size) return absl::OkStatus();
  *buffer = Buffer<T>();
  TESSERA_ASSIGN_OR_RETURN(
      *buffer, on_host ? Buffer<T>::CreateHost(memory, size) : Buffer<T>::Create(memory, size));
  return absl::OkStatus();
}

// The sets of the exchange under way, by server. One thread.
class DeviceEntrySets {
 public:
  // `memory` outlives it.
  explicit DeviceEntrySets(Memory* memory) : memory_(*memory) {}

  // Sent once, however often it is asked for; until another one of this server is.
  absl::StatusOr<PlaceSet> Of(size_t server, const std::shared_ptr<const SparseKeys>& keys) {
    if (held_.size() <= server) held_.resize(server + 1);
    Held& held = held_[server];
    if (held.keys == keys) return held.places();
    held.keys = nullptr;
    const std::vector<uint64_t>& words = keys->entries.words();
    const PlaceRanks ranks(words);
    TESSERA_RETURN_IF_ERROR(Send(words, &held.words));
    TESSERA_RETURN_IF_ERROR(Send(ranks.ranks, &held.ranks));
    TESSERA_RETURN_IF_ERROR(Send(ranks.steps, &held.steps));
    held.keys = keys;
    return held.places();
  }

 private:
  struct Held {
    std::shared_ptr<const SparseKeys> keys;
    Buffer<uint64_t> words;
    Buffer<int64_t> ranks;
    Buffer<uint64_t> steps;

    PlaceSet places() const { return {words.data(), ranks.data(), steps.data()}; }
  };

  template <typename T>
  absl::Status Send(const std::vector<T>& values, Buffer<T>* to) {
    const auto size = static_cast<int64_t>(values.size());
    TESSERA_RETURN_IF_ERROR(Grow(memory_, /*on_host=*/false, size, to));
    memory_.CopyIn(values.data(), size * static_cast<int64_t>(sizeof(T)), to->data());
    return absl::OkStatus();
  }

  Memory& memory_;
  std::vector<Held> held_;
};

}  // namespace tessera

#endif  // TESSERA_WORKER_RPC_DEVICE_ENTRIES_H_
