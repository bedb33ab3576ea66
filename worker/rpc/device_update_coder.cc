#include "worker/rpc/device_update_coder.h"

#include <algorithm>
#include <utility>

#include "common/base/check.h"
#include "common/codec/coded_keys.h"

namespace tessera {
namespace {

// Parts begin so that kernels write them in large pieces.
constexpr int64_t kPartAlignment = 256;

}  // namespace

DeviceUpdateCoder::DeviceUpdateCoder(CodingOptions options, std::shared_ptr<DeviceEntrySets> sets)
    : options_(std::move(options)), device_(*options_.device), sets_(std::move(sets)) {
  const Codec& push = options_.codecs.push;
  if (push.kind == CodecKind::kThreshold) tau_.emplace(push.tau, push.density);
  int64_t offset = 0;
  for (const ParameterSpec& spec : options_.shape.parameters) {
    residual_offsets_.push_back(offset);
    offset += spec.size();
  }
}

absl::StatusOr<std::unique_ptr<DeviceUpdateCoder>> DeviceUpdateCoder::Create(
    CodingOptions options, std::shared_ptr<DeviceEntrySets> sets) {
  auto coder = std::unique_ptr<DeviceUpdateCoder>(
      new DeviceUpdateCoder(std::move(options), std::move(sets)));
  if (coder->options_.codecs.holds_back()) {
    TESSERA_ASSIGN_OR_RETURN(coder->residual_, Buffer<float>::Create(coder->device_.memory(),
                                                                     coder->options_.shape.size));
  }
  return coder;
}

float* DeviceUpdateCoder::HeldAt(const Slice& slice) const {
  if (residual_.size() == 0) return nullptr;
  return residual_.data() + residual_offsets_[slice.parameter] + slice.row_begin * slice.columns;
}

const float* DeviceUpdateCoder::UpdateAt(const Slice& slice) const {
  return (*update_)[slice.parameter].data() + slice.row_begin * slice.columns;
}

PayloadRandom DeviceUpdateCoder::RandomOf(size_t server) const {
  return PayloadRandom::OfPush(options_.seed, options_.rank, exchange_,
                               keys_->slices[server].shard);
}

absl::Status DeviceUpdateCoder::Begin(const OutgoingPush& push, const KeySet& keys,
                                      const ConstParameterArrays& update) {
  TESSERA_CHECK(residual_.size() == 0 || !keys.subnet.has_value());
  flushes_ = residual_.size() > 0 && push.flush;
  codec_ = flushes_ ? Codec() : options_.codecs.push;
  exchange_ = push.exchange;
  keys_ = &keys;
  update_ = &update;
  made_.clear();
  if (keys.is_sparse()) return CodeSparse();
  return codec_.kind == CodecKind::kThreshold ? CodeThreshold() : CodeDense();
}

absl::Status DeviceUpdateCoder::MakeRoom(const std::vector<CodedKeys>& keys) {
  parts_.clear();
  int64_t end = 0;
  for (const CodedKeys& part : keys) {
    parts_.push_back({end, part.bytes()});
    end += (part.bytes() + kPartAlignment - 1) / kPartAlignment * kPartAlignment;
  }
  TESSERA_RETURN_IF_ERROR(Grow(device_.memory(), /*on_host=*/true, end, &host_bytes_));
  // Bytes that are entries as they lie need no place of their own.
  if (!residual_.size() && codec_ == Codec()) return absl::OkStatus();
  return Grow(device_.memory(), /*on_host=*/false, end, &bytes_);
}

void DeviceUpdateCoder::FetchPart(size_t server) {
  const Part& part = parts_[server];
  device_.memory().Fetch(bytes_.data() + part.begin, part.size, host_bytes_.data() + part.begin);
}

absl::Status DeviceUpdateCoder::CodeDense() {
  std::vector<CodedKeys> keys;
  for (const ShardSlices& slices : keys_->slices) {
    keys.emplace_back(codec_, slices, options_.shape);
  }
  TESSERA_RETURN_IF_ERROR(MakeRoom(keys));
  const bool as_they_lie = residual_.size() == 0 && codec_ == Codec();
  for (size_t s = 0; s < keys.size(); ++s) {
    const PayloadRandom random = RandomOf(s);
    EachCodedSlice(
        keys[s], keys_->slices[s], [&](const Slice& slice, const Stretch& stretch, int64_t byte) {
          const int64_t at = parts_[s].begin + byte;
          if (as_they_lie) {
            device_.memory().Fetch(UpdateAt(slice), stretch.bytes(), host_bytes_.data() + at);
          } else {
            device_.exchange().Encode(codec_, stretch, random, UpdateAt(slice), HeldAt(slice),
                                      bytes_.data() + at);
            // Crosses while the next one is coded.
            device_.memory().Fetch(bytes_.data() + at, stretch.bytes(), host_bytes_.data() + at);
          }
        });
  }
  return device_.Finish();
}

absl::Status DeviceUpdateCoder::CodeSparse() {
  std::vector<CodedKeys> keys;
  int64_t most = 0;
  for (const auto& sparse : keys_->sparse) {
    const int64_t count = sparse->entries.count();
    keys.push_back(*CodedForms::OfEntries(options_.codecs, count, sparse->on_all).Find(codec_));
    most = std::max(most, count);
  }
  TESSERA_RETURN_IF_ERROR(MakeRoom(keys));
  TESSERA_RETURN_IF_ERROR(Grow(device_.memory(), /*on_host=*/false,
                               most * static_cast<int64_t>(keys.size()), &entries_));
  const bool holds_back = residual_.size() > 0;
  if (holds_back) TESSERA_RETURN_IF_ERROR(Grow(device_.memory(), /*on_host=*/false, most, &lost_));
  for (size_t s = 0; s < keys.size(); ++s) {
    TESSERA_ASSIGN_OR_RETURN(const PlaceSet set, sets_->Of(s, keys_->sparse[s]));
    float* const values = entries_.data() + static_cast<int64_t>(s) * most;
    for (const Slice& slice : keys_->slices[s].slices) {
      // Entries that are not sent are held back, too.
      if (holds_back) device_.vector().Axpy(slice.size(), 1.0f, UpdateAt(slice), HeldAt(slice));
      device_.exchange().Gather(set, slice.offset, slice.offset + slice.size(),
                                holds_back ? HeldAt(slice) : UpdateAt(slice), values);
    }
    if (codec_ == Codec() && !holds_back) {
      device_.memory().Fetch(values, parts_[s].size, host_bytes_.data() + parts_[s].begin);
      continue;
    }
    if (holds_back) device_.memory().Zero(lost_.data(), lost_.bytes());
    for (const Stretch& stretch : keys[s].stretches()) {
      device_.exchange().Encode(codec_, stretch, RandomOf(s), values,
                                holds_back ? lost_.data() : nullptr,
                                bytes_.data() + parts_[s].begin);
    }
    FetchPart(s);
    if (!holds_back) continue;
    // Of what is sent the codec's own losses stay.
    for (const Slice& slice : keys_->slices[s].slices) {
      device_.exchange().Scatter(set, slice.offset, slice.offset + slice.size(), lost_.data(),
                                 HeldAt(slice));
    }
  }
  return device_.Finish();
}

absl::Status DeviceUpdateCoder::LeadTau() {
  const int64_t wanted = tau_->sample_size();
  if (wanted == 0) return absl::OkStatus();
  struct Sample {
    int64_t distance = 0;
    int64_t count = 0;
  };
  std::vector<Sample> samples;
  int64_t total = 0;
  for (const absl::Span<const float> entries : *update_) {
    const int64_t size = static_cast<int64_t>(entries.size());
    const double share = static_cast<double>(size) / static_cast<double>(options_.shape.size);
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
    const absl::Span<const float> entries = (*update_)[p];
    device_.exchange().SampleMagnitudes(entries.size(), samples[p].distance, entries.data(),
                                        residual_.data() + residual_offsets_[p], out);
    out += samples[p].count;
  }
  memory.Fetch(samples_.data(), total * static_cast<int64_t>(sizeof(float)), host_samples_.data());
  TESSERA_RETURN_IF_ERROR(device_.Finish());
  tau_->Lead(std::vector<float>(host_samples_.data(), host_samples_.data() + total));
  return absl::OkStatus();
}

absl::Status DeviceUpdateCoder::CodeThreshold() {
  TESSERA_RETURN_IF_ERROR(LeadTau());
  Memory& memory = device_.memory();
  int64_t tiles = 0;
  for (const ShardSlices& slices : keys_->slices) {
    for (const Slice& slice : slices.slices) tiles += ThresholdTiles(slice.size());
  }
  TESSERA_RETURN_IF_ERROR(Grow(memory, /*on_host=*/false, tiles, &tiles_));
  TESSERA_RETURN_IF_ERROR(Grow(memory, /*on_host=*/true, tiles, &host_tiles_));
  TESSERA_RETURN_IF_ERROR(Grow(memory, /*on_host=*/false, tiles * kTileWords, &bits_));
  TESSERA_RETURN_IF_ERROR(Grow(memory, /*on_host=*/false, tiles, &begins_));
  int64_t tile = 0;
  for (const ShardSlices& slices : keys_->slices) {
    for (const Slice& slice : slices.slices) {
      device_.exchange().FindMarks(slice.size(), tau_->value(), UpdateAt(slice), HeldAt(slice),
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
  tile = 0;
  for (const ShardSlices& slices : keys_->slices) {
    ThresholdEncoder encoder(tau_->value(), codec_.packed);
    for (const Slice& slice : slices.slices) {
      for (int64_t begin = 0; begin < slice.size(); begin += kThresholdRun, ++tile) {
        const ThresholdTile& found = host_tiles_.data()[tile];
        encoder.Add({found.marks, found.largest}, host_marks_.data() + begins[tile],
                    std::min(kThresholdRun, slice.size() - begin));
      }
    }
    made_.push_back(std::make_shared<const std::vector<char>>(encoder.Finish()));
  }
  return absl::OkStatus();
}

std::unique_ptr<UpdatePayload> DeviceUpdateCoder::Make(size_t server, UpdateRuns*) {
  if (!made_.empty()) return MadeUpdate(made_[server]);
  return BorrowedUpdate(host_bytes_.data() + parts_[server].begin, parts_[server].size);
}

absl::StatusOr<std::vector<absl::Span<float>>> DeviceUpdateCoder::held_back() {
  std::vector<absl::Span<float>> views;
  if (residual_.size() == 0) return views;
  if (residual_view_.size() == 0) {
    TESSERA_ASSIGN_OR_RETURN(
        residual_view_,
        HostView<float>::Create(device_.memory(), residual_.data(), residual_.size()));
  }
  residual_view_.Fetch();
  TESSERA_RETURN_IF_ERROR(device_.Finish());
  for (size_t p = 0; p < residual_offsets_.size(); ++p) {
    views.emplace_back(residual_view_.data() + residual_offsets_[p],
                       options_.shape.parameters[p].size());
  }
  return views;
}

absl::Status DeviceUpdateCoder::AdoptHeldBack() {
  if (residual_view_.size() == 0) return absl::OkStatus();
  residual_view_.Send();
  return device_.Finish();
}

}  // namespace tessera
