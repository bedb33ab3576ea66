#include "worker/rpc/update_coder.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "common/base/check.h"
#include "common/base/vector_clones.h"
#include "common/codec/tau.h"

namespace tessera {

namespace {

// Payloads are copied in pieces of so many bytes.
constexpr int64_t kRoom = int64_t{1} << 20;

std::shared_ptr<const std::vector<char>> BytesOf(UpdatePayload* payload) {
  const auto bytes = std::make_shared<std::vector<char>>();
  bytes->reserve(payload->bytes());
  while (payload->left() > 0) {
    for (const grpc::Slice& slice : payload->Next(kRoom, nullptr)) {
      bytes->insert(bytes->end(), slice.begin(), slice.end());
    }
  }
  return bytes;
}

TESSERA_VECTOR_CLONES void AddEach(int64_t count, const float* from, float* to) {
  for (int64_t i = 0; i < count; ++i) to[i] += from[i];
}

}  // namespace

UpdateCoder::UpdateCoder(Options options) : options_(std::move(options)) {
  const CodecChoice& codecs = options_.codecs;
  const ParameterRange all = {0, static_cast<int>(options_.shape.parameters.size())};
  // A worker that trains some layers holds nothing back for the others.
  if (codecs.holds_back()) residual_.emplace(options_.shape, options_.layers.value_or(all));
  const SelectiveCodec* const selective = codecs.push->selective();
  if (selective != nullptr) selector_ = selective->NewSelector();
}

int64_t UpdateCoder::MemoryNeeded(const CodecChoice& codecs, int64_t entries) {
  if (!codecs.holds_back()) return 0;
  int64_t bytes = entries * static_cast<int64_t>(sizeof(float));
  // Payloads are kept to be sent again: at most half of the entries' bytes, but where they are f32.
  const bool is_f32 = codecs.flush || codecs.push == Codec();
  return is_f32 ? 2 * bytes : bytes + bytes / 2;
}

absl::Status UpdateCoder::Begin(const OutgoingPush& push, const KeySet& keys,
                                const ConstParameterArrays& update) {
  TESSERA_CHECK(!residual_ || !keys.subnet.has_value());
  // A worker of some layers pushes these, or nothing.
  TESSERA_CHECK(!options_.layers ||
                (keys.layers && (keys.layers->empty() || keys.layers == options_.layers)));
  flushes_ = residual_.has_value() && push.flush;
  codec_ = flushes_ ? Codec() : options_.codecs.push;
  exchange_ = push.exchange;
  keys_ = &keys;
  update_ = &update;
  made_.reset();
  if (selector_ != nullptr && !flushes_) LearnOfUpdate();
  return absl::OkStatus();
}

std::vector<UpdateCoder::Pushed> UpdateCoder::PushedRuns() const {
  std::vector<Pushed> runs;
  // What the arrays have of other fragments is no update.
  if (keys_->fragment.has_value()) {
    for (const ShardSlices& slices : keys_->slices) {
      for (const Slice& slice : slices.slices) {
        runs.push_back({slice.parameter, slice.row_begin * slice.columns, slice.size()});
      }
    }
    return runs;
  }
  // Whole parameters, whichever servers own them.
  const ParameterRange pushed =
      keys_->layers.value_or(ParameterRange{0, static_cast<int>(update_->size())});
  for (int p = pushed.begin; p < pushed.end; ++p) {
    runs.push_back({p, 0, options_.shape.parameters[p].size()});
  }
  return runs;
}

void UpdateCoder::LearnOfUpdate() {
  const int64_t wanted = selector_->sample_size();
  if (wanted == 0) return;
  // All entries of the push, though each server encodes its own: one threshold for all.
  const std::vector<Pushed> pushed = PushedRuns();
  int64_t size = 0;
  for (const Pushed& run : pushed) size += run.count;
  std::vector<float> magnitudes;
  for (const Pushed& run : pushed) {
    const double share = static_cast<double>(run.count) / static_cast<double>(size);
    SampleMagnitudes((*update_)[run.parameter].data() + run.begin,
                     residual_->of(run.parameter).data() + run.begin, run.count,
                     std::max<int64_t>(1, static_cast<int64_t>(share * wanted)), &magnitudes);
  }
  selector_->Learn(std::move(magnitudes));
}

std::unique_ptr<UpdatePayload> UpdateCoder::Make(size_t server, UpdateRuns* runs) {
  if (options_.placement == Placement::kSharded || !residual_) return MakeOnce(server, runs);
  // The residual gives up what was sent once, though all servers get it.
  if (made_ == nullptr) made_ = BytesOf(MakeOnce(server, runs).get());
  return MadeUpdate(made_);
}

std::unique_ptr<UpdatePayload> UpdateCoder::MakeOnce(size_t server, UpdateRuns* runs) {
  const ShardSlices& slices = keys_->slices[server];
  if (keys_->is_sparse()) return MakeSparse(server, runs);
  // A server that owns none of the layers or of the fragment gets a push without bytes.
  if (keys_->is_part() && slices.size == 0) return MadeUpdate(std::vector<char>());
  // Entries that no exchange moved may be held back where the codec itself loses nothing.
  if (flushes_ || (residual_ && codec_ == Codec())) return MakeFlush(slices);
  if (selector_ != nullptr) return MakeSelected(slices);
  runs->Assign(slices, *update_);
  if (codec_ == Codec()) return PlainUpdate(runs);
  CodedKeys keys(codec_, slices, options_.shape);
  const PayloadRandom random =
      PayloadRandom::OfPush(options_.seed, options_.rank, exchange_, slices.shard);
  if (!residual_) return CodedUpdate(std::move(keys), random, runs);
  return FeedbackUpdate(std::move(keys), random, runs,
                        ResidualCursor(&*residual_, slices, nullptr));
}

std::unique_ptr<UpdatePayload> UpdateCoder::MakeSparse(size_t server, UpdateRuns* runs) {
  const ShardSlices& slices = keys_->slices[server];
  const EntrySet& entries = keys_->sparse[server]->entries;
  if (sparse_.size() <= server) sparse_.resize(keys_->slices.size());
  std::vector<float>& values = sparse_[server];
  values.resize(entries.count());
  int64_t done = 0;
  for (const Slice& slice : slices.slices) {
    const int64_t begin = slice.row_begin * slice.columns;
    const float* all = (*update_)[slice.parameter].data() + begin;
    if (residual_) {
      float* const held = residual_->of(slice.parameter).data() + begin;
      // The residual takes the whole update, and gives up what is sent.
      AddEach(slice.size(), all, held);
      all = held;
    }
    done += GatherEntries(entries, slice.offset, slice.offset + slice.size(), all,
                          values.data() + done);
  }
  const ConstParameterArrays arrays = {absl::MakeConstSpan(values)};
  const ShardSlices vector = EntriesAsSlices(done);
  runs->Assign(vector, arrays);
  const PayloadRandom random =
      PayloadRandom::OfPush(options_.seed, options_.rank, exchange_, slices.shard);
  const CodedForms forms =
      CodedForms::OfEntries(options_.codecs, done, keys_->sparse[server]->on_all);
  if (!residual_) {
    return codec_ == Codec() ? PlainUpdate(runs) : CodedUpdate(*forms.Find(codec_), random, runs);
  }
  // What the codec loses of the entries that are sent stays in the residual, and so does all that is not sent. Coding
  // is done here, as the losses go back to their places below.
  Residual lost(VectorShape(done));
  std::unique_ptr<UpdatePayload> payload;
  if (codec_ == Codec()) {
    payload = PlainUpdate(runs);
  } else {
    payload = MadeUpdate(BytesOf(
        FeedbackUpdate(*forms.Find(codec_), random, runs, ResidualCursor(&lost, vector, nullptr))
            .get()));
  }
  const float* left = lost.of(0).data();
  for (const Slice& slice : slices.slices) {
    left += ScatterEntries(entries, slice.offset, slice.offset + slice.size(), left,
                           residual_->of(slice.parameter).data() + slice.row_begin * slice.columns);
  }
  return payload;
}

std::unique_ptr<UpdatePayload> UpdateCoder::MakeSelected(const ShardSlices& slices) {
  const std::unique_ptr<SelectionEncoder> encoder = selector_->NewEncoder();
  for (const Slice& slice : slices.slices) {
    const int64_t begin = slice.row_begin * slice.columns;
    encoder->Encode((*update_)[slice.parameter].data() + begin,
                    residual_->of(slice.parameter).data() + begin, slice.size());
  }
  return MadeUpdate(encoder->Finish());
}

std::unique_ptr<UpdatePayload> UpdateCoder::MakeFlush(const ShardSlices& slices) {
  std::vector<char> bytes(slices.bytes());
  char* out = bytes.data();
  for (const Slice& slice : slices.slices) {
    const int64_t begin = slice.row_begin * slice.columns;
    const float* const update = (*update_)[slice.parameter].data() + begin;
    float* const held = residual_->of(slice.parameter).data() + begin;
    for (int64_t i = 0; i < slice.size(); ++i, out += sizeof(float)) {
      const float sum = update[i] + held[i];
      std::memcpy(out, &sum, sizeof(sum));
      held[i] = 0;
    }
  }
  return MadeUpdate(std::move(bytes));
}

absl::StatusOr<std::vector<absl::Span<float>>> UpdateCoder::held_back() {
  std::vector<absl::Span<float>> views;
  if (!residual_.has_value()) return views;
  for (size_t p = 0; p < options_.shape.parameters.size(); ++p) {
    views.push_back(absl::MakeSpan(residual_->of(static_cast<int>(p))));
  }
  return views;
}

}  // namespace tessera
