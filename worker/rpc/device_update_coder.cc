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
  const SelectiveCodec* const selective = options_.codecs.push->selective();
  if (selective != nullptr) selection_.emplace(*selective, options_.shape, &device_);
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
  // Without error feedback there is no residual, and kernels take null for that.
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
  // A subnet's columns change from round to round: what they lose is not held back.
  TESSERA_CHECK(residual_.size() == 0 || !keys.subnet.has_value());
  // A flush sends the update and all that was held back as f32, so that nothing is left.
  flushes_ = residual_.size() > 0 && push.flush;
  codec_ = flushes_ ? Codec() : options_.codecs.push;
  exchange_ = push.exchange;
  keys_ = &keys;
  update_ = &update;
  made_.clear();
  if (keys.is_sparse()) return CodeSparse();
  // Codecs that select entries have a way of their own, but for flushes, which send all.
  if (!selection_ || flushes_) return CodeDense();
  TESSERA_ASSIGN_OR_RETURN(made_,
                           selection_->Code(keys, update, {residual_.data(), residual_offsets_}));
  return absl::OkStatus();
}

absl::Status DeviceUpdateCoder::MakeRoom(const std::vector<CodedKeys>& keys) {
  parts_.clear();
  int64_t end = 0;
  for (const CodedKeys& part : keys) {
    parts_.push_back({end, part.bytes()});
    end += (part.bytes() + kPartAlignment - 1) / kPartAlignment * kPartAlignment;
  }
  TESSERA_RETURN_IF_ERROR(Grow(device_.memory(), /*on_host=*/true, end, &host_bytes_));
  // Bytes that are entries as they lie need no place of their own: they are copied from the update itself.
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
    // Each server has random numbers of its own, so that a payload is the same in each attempt.
    const PayloadRandom random = RandomOf(s);
    EachCodedSlice(
        keys[s], keys_->slices[s], [&](const Slice& slice, const Segment& segment, int64_t byte) {
          const int64_t at = parts_[s].begin + byte;
          if (as_they_lie) {
            device_.memory().Fetch(UpdateAt(slice), segment.bytes(), host_bytes_.data() + at);
          } else {
            device_.exchange().Encode(segment, random, UpdateAt(slice), HeldAt(slice),
                                      bytes_.data() + at);
            // Crosses while the next one is coded.
            device_.memory().Fetch(bytes_.data() + at, segment.bytes(), host_bytes_.data() + at);
          }
        });
  }
  // From here on the payload is the host's.
  return device_.Finish();
}

absl::Status DeviceUpdateCoder::CodeSparse() {
  std::vector<CodedKeys> keys;
  int64_t most = 0;
  for (const auto& sparse : keys_->sparse) {
    const int64_t count = sparse->entries.count();
    // The codec's form for so many entries: few are left as f32.
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
      // Entries that are not sent are held back, too: the residual takes the whole update, and gives up what is sent.
      if (holds_back) device_.vector().Axpy(slice.size(), 1.0f, UpdateAt(slice), HeldAt(slice));
      device_.exchange().Gather(set, slice.offset, slice.offset + slice.size(),
                                holds_back ? HeldAt(slice) : UpdateAt(slice), values);
    }
    if (codec_ == Codec() && !holds_back) {
      device_.memory().Fetch(values, parts_[s].size, host_bytes_.data() + parts_[s].begin);
      continue;
    }
    // What the codec loses is added up from zero, for the entries that are sent.
    if (holds_back) device_.memory().Zero(lost_.data(), lost_.bytes());
    for (const Segment& segment : keys[s].segments()) {
      device_.exchange().Encode(segment, RandomOf(s), values, holds_back ? lost_.data() : nullptr,
                                bytes_.data() + parts_[s].begin);
    }
    FetchPart(s);
    if (!holds_back) continue;
    // What the codec loses of the entries that are sent stays in the residual.
    for (const Slice& slice : keys_->slices[s].slices) {
      device_.exchange().Scatter(set, slice.offset, slice.offset + slice.size(), lost_.data(),
                                 HeldAt(slice));
    }
  }
  return device_.Finish();
}

// Payloads are ready when Begin returns: the next step may write over the update.
std::unique_ptr<UpdatePayload> DeviceUpdateCoder::Make(size_t server, UpdateRuns*) {
  if (!made_.empty()) return MadeUpdate(made_[server]);
  return BorrowedUpdate(host_bytes_.data() + parts_[server].begin, parts_[server].size);
}

absl::StatusOr<std::vector<absl::Span<float>>> DeviceUpdateCoder::held_back() {
  std::vector<absl::Span<float>> views;
  if (residual_.size() == 0) return views;
  // The residual is looked at seldom, so that its copy on the host is made on demand.
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
