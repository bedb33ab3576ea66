#include "worker/rpc/device_selection.h"

#include <algorithm>
#include <utility>

#include "common/codec/tau.h"
#include "worker/rpc/device_entries.h"

namespace tessera {
namespace {

// There is memory for so many times the share of the entries that is meant to be sent.
constexpr double kMarksMax = 4;

}  // namespace

DeviceSelection::DeviceSelection(const SelectiveCodec& codec, const ModelShape& shape,
                                 Backend* device)
    : codec_(codec), shape_(shape), device_(*device), selector_(codec.NewSelector()) {}

int64_t DeviceSelection::BytesNeeded(const SelectiveCodec& codec, const ModelShape& shape) {
  // The sums of update and residual, and the payloads.
  if (codec.largest_of_chunk() > 0) return shape.size * 4 + codec.BytesMax(shape.size);
  int64_t tiles = 0;
  for (const ParameterSpec& spec : shape.parameters) tiles += ThresholdTiles(spec.size());
  const int64_t tile = sizeof(ThresholdTile) + kTileWords * 4 + 8;
  // Codecs without a share, such as thresholds that the user sets, may mark everything.
  const std::optional<double> sent = codec.sent_share();
  const double share = sent.has_value() ? std::min(1.0, kMarksMax * *sent) : 1.0;
  return tiles * tile + static_cast<int64_t>(share * static_cast<double>(shape.size)) * 4;
}

// The threshold follows from a sample of the magnitudes, in place of a sort of all of them.
absl::Status DeviceSelection::Learn(const ConstParameterArrays& update, const HeldOnDevice& held) {
  const int64_t wanted = selector_->sample_size();
  if (wanted == 0) return absl::OkStatus();
  struct Sample {
    int64_t distance = 0;
    int64_t count = 0;
  };
  std::vector<Sample> samples;
  int64_t total = 0;
  for (const absl::Span<const float> entries : update) {
    const int64_t size = static_cast<int64_t>(entries.size());
    const double share = static_cast<double>(size) / static_cast<double>(shape_.size);
    // Every parameter is sampled in proportion to its size, at least once.
    const int64_t distance =
        SampleDistance(size, std::max<int64_t>(1, static_cast<int64_t>(share * wanted)));
    samples.push_back({distance, (size + distance - 1) / distance});
    total += samples.back().count;
  }
  Memory& memory = device_.memory();
  TESSERA_RETURN_IF_ERROR(Grow(memory, /*on_host=*/false, total, &samples_));
  TESSERA_RETURN_IF_ERROR(Grow(memory, /*on_host=*/true, total, &host_samples_));
  float* out = samples_.data();
  for (size_t p = 0; p < samples.size(); ++p) {
    const absl::Span<const float> entries = update[p];
    device_.exchange().SampleMagnitudes(entries.size(), samples[p].distance, entries.data(),
                                        held.values + held.offsets[p], out);
    out += samples[p].count;
  }
  memory.Fetch(samples_.data(), total * static_cast<int64_t>(sizeof(float)), host_samples_.data());
  // The host learns the threshold, and all marks depend on it.
  TESSERA_RETURN_IF_ERROR(device_.Finish());
  selector_->Learn(std::vector<float>(host_samples_.data(), host_samples_.data() + total));
  return absl::OkStatus();
}

absl::StatusOr<std::vector<DeviceSelection::Bytes>> DeviceSelection::Code(
    const KeySet& keys, const ConstParameterArrays& update, const HeldOnDevice& held) {
  return codec_.largest_of_chunk() > 0 ? CodeLargest(keys, update, held)
                                       : CodeMarked(keys, update, held);
}

// Chunks go across parameters, so that the entries of a server are put side by side first.
absl::StatusOr<std::vector<DeviceSelection::Bytes>> DeviceSelection::CodeLargest(
    const KeySet& keys, const ConstParameterArrays& update, const HeldOnDevice& held) {
  Memory& memory = device_.memory();
  int64_t most = 0;
  std::vector<int64_t> begins = {0};
  for (const ShardSlices& slices : keys.slices) {
    most = std::max(most, slices.size);
    begins.push_back(begins.back() + codec_.BytesMax(slices.size));
  }
  TESSERA_RETURN_IF_ERROR(Grow(memory, /*on_host=*/false, most, &sums_));
  TESSERA_RETURN_IF_ERROR(Grow(memory, /*on_host=*/false, begins.back(), &bytes_));
  TESSERA_RETURN_IF_ERROR(Grow(memory, /*on_host=*/true, begins.back(), &host_bytes_));
  for (size_t s = 0; s < keys.slices.size(); ++s) {
    const ShardSlices& slices = keys.slices[s];
    const auto held_at = [&](const Slice& slice) {
      return held.values + held.offsets[slice.parameter] + slice.row_begin * slice.columns;
    };
    for (const Slice& slice : slices.slices) {
      device_.vector().Add(slice.size(),
                           update[slice.parameter].data() + slice.row_begin * slice.columns,
                           held_at(slice), sums_.data() + slice.offset);
    }
    device_.exchange().EncodeLargest(slices.size, codec_.largest_of_chunk(), sums_.data(),
                                     bytes_.data() + begins[s]);
    for (const Slice& slice : slices.slices) {
      memory.Copy(sums_.data() + slice.offset, slice.size() * static_cast<int64_t>(sizeof(float)),
                  held_at(slice));
    }
    // Crosses while the next server's entries are coded.
    memory.Fetch(bytes_.data() + begins[s], begins[s + 1] - begins[s],
                 host_bytes_.data() + begins[s]);
  }
  TESSERA_RETURN_IF_ERROR(device_.Finish());
  std::vector<Bytes> made;
  for (size_t s = 0; s < keys.slices.size(); ++s) {
    const char* const bytes = host_bytes_.data();
    made.push_back(
        std::make_shared<const std::vector<char>>(bytes + begins[s], bytes + begins[s + 1]));
  }
  return made;
}

absl::StatusOr<std::vector<DeviceSelection::Bytes>> DeviceSelection::CodeMarked(
    const KeySet& keys, const ConstParameterArrays& update, const HeldOnDevice& held) {
  // Marks come in two rounds: how many each tile has, and then where, as places in the list follow from the numbers.
  TESSERA_RETURN_IF_ERROR(Learn(update, held));
  Memory& memory = device_.memory();
  int64_t tiles = 0;
  for (const ShardSlices& slices : keys.slices) {
    for (const Slice& slice : slices.slices) tiles += ThresholdTiles(slice.size());
  }
  TESSERA_RETURN_IF_ERROR(Grow(memory, /*on_host=*/false, tiles, &tiles_));
  TESSERA_RETURN_IF_ERROR(Grow(memory, /*on_host=*/true, tiles, &host_tiles_));
  TESSERA_RETURN_IF_ERROR(Grow(memory, /*on_host=*/false, tiles * kTileWords, &bits_));
  TESSERA_RETURN_IF_ERROR(Grow(memory, /*on_host=*/false, tiles, &begins_));
  int64_t tile = 0;
  for (const ShardSlices& slices : keys.slices) {
    for (const Slice& slice : slices.slices) {
      const int64_t begin = slice.row_begin * slice.columns;
      device_.exchange().FindMarks(slice.size(), *selector_->limit(),
                                   update[slice.parameter].data() + begin,
                                   held.values + held.offsets[slice.parameter] + begin,
                                   tiles_.data() + tile, bits_.data() + tile * kTileWords);
      tile += ThresholdTiles(slice.size());
    }
  }
  memory.Fetch(tiles_.data(), tiles * static_cast<int64_t>(sizeof(ThresholdTile)),
               host_tiles_.data());
  TESSERA_RETURN_IF_ERROR(device_.Finish());
  std::vector<int64_t> begins;
  int64_t marks = 0;
  for (tile = 0; tile < tiles; ++tile) {
    begins.push_back(marks);
    marks += host_tiles_.data()[tile].marks;
  }
  TESSERA_RETURN_IF_ERROR(Grow(memory, /*on_host=*/false, marks, &marks_));
  TESSERA_RETURN_IF_ERROR(Grow(memory, /*on_host=*/true, marks, &host_marks_));
  memory.CopyIn(begins.data(), tiles * 8, begins_.data());
  device_.exchange().ListMarks(tiles, bits_.data(), begins_.data(), marks_.data());
  memory.Fetch(marks_.data(), marks * static_cast<int64_t>(sizeof(uint32_t)), host_marks_.data());
  TESSERA_RETURN_IF_ERROR(device_.Finish());
  // What is left is of the size of what is sent, and the host's.
  std::vector<Bytes> made;
  tile = 0;
  for (const ShardSlices& slices : keys.slices) {
    const std::unique_ptr<SelectionEncoder> encoder = selector_->NewEncoder();
    for (const Slice& slice : slices.slices) {
      for (int64_t begin = 0; begin < slice.size(); begin += kThresholdRun, ++tile) {
        const ThresholdTile& found = host_tiles_.data()[tile];
        encoder->Add({found.marks, found.largest}, host_marks_.data() + begins[tile],
                     std::min(kThresholdRun, slice.size() - begin));
      }
    }
    made.push_back(std::make_shared<const std::vector<char>>(encoder->Finish()));
  }
  return made;
}

}  // namespace tessera
