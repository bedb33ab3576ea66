#include "server/shard/forms/dense_form.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "common/codec/selective_codec.h"
#include "common/codec/update_reader.h"
#include "server/shard/forms/form_entry.h"

namespace tessera {
namespace {

// A push of a selective codec of so small a share of the slice's bytes is applied entry by entry. A larger one, of
// every sixteenth entry where it is not packed, touches nearly every cache line in any case (bench/commits).
constexpr int64_t kSentShare = 16;

}  // namespace

// The tail of a job of subnets applies deltas, which need no state of the rule.
DenseForm::DenseForm(FormContext context, bool is_tail)
    : ExchangeForm(std::move(context)),
      is_tail_(is_tail),
      states_(is_tail ? 0 : this->context().rule->state_count()) {
  for (std::vector<float>& state : states_) state.assign(traits().slices.size, 0.0f);
}

std::vector<float>* DenseForm::sum() {
  sum_.resize(traits().slices.size);
  return &sum_;
}

// Every shard that gets the push must decide the same, as -0 tells the two ways apart: this goes by the push's bytes
// and the job alone. Where pushes are combined a leader with a standby makes another pass than one without.
bool DenseForm::AppliesSent(const StagedPush& push) const {
  const bool is_combined = context().collecting() != Exchange(0) && !context().is_replica;
  return push.coded == nullptr && count_ == 0 && context().rule->keeps_where_zero() &&
         !(is_combined && sums_pushes()) &&
         push.payload.size() <= traits().slices.bytes() / kSentShare;
}

void DenseForm::Fold(const StagedPush& push, float weight) {
  UpdateReader reader(push.codec, push.coded, push.payload);
  // The first push of an update assigns, so that the sum need not be zeroed before.
  FoldRun(all(), count_++ == 0, weight, &reader, sum());
}

void DenseForm::Commit(const Update& update) {
  ApplyRun(all(), update, sum_, target());
  count_ = 0;
}

void DenseForm::FoldAndCommit(const StagedPush& push, float weight, const Update& update) {
  if (AppliesSent(push)) {
    const std::unique_ptr<SelectedReader> reader = push.codec->selective()->NewReader(push.payload);
    return ApplySent(update, weight, reader.get(), *context().rule, context().store);
  }
  UpdateReader reader(push.codec, push.coded, push.payload);
  // The last push of an update is added and applied block by block, while its values are in the cache.
  FoldAndApplyRun(all(), count_ == 0, weight, &reader, update, &sum_, target());
  count_ = 0;
}

void DenseForm::Save(int number, Exchange, std::vector<float>* out) const {
  out->assign(states_[number].begin(), states_[number].end());
}

std::vector<std::vector<float>*> DenseForm::BeginLoad() {
  std::vector<std::vector<float>*> arrays;
  for (std::vector<float>& state : states_) arrays.push_back(&state);
  return arrays;
}

void DenseForm::EndLoad(const SavedShard& saved) {
  // States that hold a sum over several updates, such as a buffer, are scaled to the divisor of this job's rule.
  for (size_t s = 0; s < states_.size() && s < saved.divisors.size(); ++s) {
    const float factor = context().rule->divisor(static_cast<int>(s)) / saved.divisors[s];
    if (factor == 1) continue;
    std::transform(states_[s].begin(), states_[s].end(), states_[s].begin(),
                   [factor](float v) { return factor * v; });
  }
}

void DenseForm::TakeImage(const Snapshot&, ImageEvent* image) const {
  // The image is sent while updates go on, so that states are copied first.
  for (const std::vector<float>& state : states_) {
    const auto copy = std::make_shared<const std::vector<float>>(state);
    image->values.Append({reinterpret_cast<const char*>(copy->data()), traits().slices.bytes()},
                         copy);
  }
}

absl::Status DenseForm::SetImage(const ImageEvent&, ImageReader* values) {
  for (std::vector<float>& state : states_) values->Read(traits().slices.size, state.data());
  return absl::OkStatus();
}

int64_t DenseForm::memory_bytes() const {
  return traits().slices.bytes() * (1 + static_cast<int64_t>(states_.size()));
}

extern const FormEntry kDenseForm = {
    [](const ShardOptions&) { return true; },
    [](const ShardOptions& o, const ShardSlices& slices) -> std::shared_ptr<const JobKeys> {
      return std::make_shared<const JobKeys>(o.shape, slices, o.codecs);
    },
    [](const FormContext& context, const ShardOptions&) -> std::unique_ptr<ExchangeForm> {
      return std::make_unique<DenseForm>(context, /*is_tail=*/false);
    }};

}  // namespace tessera
