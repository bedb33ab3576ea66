#include "server/shard/forms/core_form.h"

#include <utility>
#include <variant>

#include "common/base/check.h"
#include "server/shard/forms/form_entry.h"

namespace tessera {
namespace {

using Entries = std::shared_ptr<const ExchangedEntries>;

// nullptr means keys of another kind.
const NamedCore* CoreIn(const NamedKeys& keys) { return std::get_if<NamedCore>(&keys); }

// The policy collects an exchange only where all members make the same ones: in lockstep.
CoreExchange::Options OptionsOf(const FormContext& context, const CoreShare& share) {
  const ShardTraits& traits = *context.traits;
  return {&traits.shape,
          &traits.slices,
          traits.layout_hash,
          traits.seed,
          share,
          traits.codecs,
          context.collecting() != Exchange(0)};
}

}  // namespace

absl::StatusOr<Entries> CoreJobKeys::OfPush(const NamedKeys& keys, uint64_t summed) const {
  if (CoreIn(keys) == nullptr) return JobKeys::OfPush(keys, summed);
  // Which entries a core means follows from the selection, so no form is found here.
  TESSERA_RETURN_IF_ERROR(CheckSummed(keys, summed));
  return Entries();
}

// Core and explorer together have at most all entries, and no codec here writes more than f32 does.
int64_t CoreJobKeys::coded_bytes_max(const CodedKeys& all) const {
  return all.entries() * static_cast<int64_t>(sizeof(float));
}

CoreForm::CoreForm(const FormContext& context, const CoreShare& share)
    : ExchangeForm(context), cores_(OptionsOf(context, share), context.store) {
  // A rule with state would have to apply to all entries, whether they were pushed or not.
  TESSERA_CHECK(context.rule->state_count() == 0);
}

absl::StatusOr<ExchangeForm::Found> CoreForm::EntriesOf(const ReceivedPush& push) {
  TESSERA_ASSIGN_OR_RETURN(Found found, ExchangeForm::EntriesOf(push));
  if (found.entries != nullptr) return found;
  const PlanMember& member = *context().plan->Find(push.member);
  TESSERA_ASSIGN_OR_RETURN(
      const CoreExchange::Found place,
      cores_.PlaceOfPush(Where(push), member, push.exchange, *CoreIn(push.keys)));
  found.entries = place.place;
  found.needs_keys = place.need_keys;
  return found;
}

// Not before it is accepted: whoever follows hears of no push that was refused.
void CoreForm::OnAccepted(const ReceivedPush& push, const ExchangedEntries& entries) {
  if (CoreIn(push.keys) != nullptr) cores_.OnAccepted(static_cast<const SparsePlace&>(entries));
}

// A null place means that the push has all entries.
void CoreForm::Fold(const StagedPush& push, float weight) {
  const bool is_sparse = CoreIn(push.keys) != nullptr;
  cores_.Fold(is_sparse ? static_cast<const SparsePlace*>(push.entries.get()) : nullptr,
              *push.coded, push.payload, weight);
}

void CoreForm::Commit(const Update& update) {
  cores_.Commit(update, *context().rule, context().store);
}

absl::StatusOr<std::optional<Entries>> CoreForm::EntriesOfRead(const PlanMember& member,
                                                               Exchange after,
                                                               const NamedKeys& keys) {
  const NamedCore* const core = CoreIn(keys);
  if (core == nullptr) return ExchangeForm::EntriesOfRead(member, after, keys);
  return std::make_optional(Entries(cores_.PlaceOfPull(member, after, core->name)));
}

void CoreForm::OnChange() {
  cores_.MaybeSelect(context().begun(), context().collecting(), context().store);
}

// Where members advance on their own the first core is selected from the values that are restored.
int CoreForm::saved_arrays() const { return context().collecting() != Exchange(0) ? 1 : 0; }

void CoreForm::Save(int, Exchange after, std::vector<float>* out) const { cores_.Save(after, out); }

std::vector<std::vector<float>*> CoreForm::BeginLoad() {
  if (saved_arrays() == 0) return {};
  loaded_.resize(traits().slices.size);
  return {&loaded_};
}

void CoreForm::EndLoad(const SavedShard& saved) {
  cores_.Load(saved.exchange, saved.core_every, std::exchange(loaded_, {}), context().store);
}

void CoreForm::TakeImage(const Snapshot& now, ImageEvent* image) const {
  image->cores = cores_.TakeImage(now, &image->values);
}

absl::Status CoreForm::SetImage(const ImageEvent& image, ImageReader* values) {
  return cores_.SetImage(*image.cores, values, context().store);
}

// Whoever begins with an image knows only the cores in it, and could not decode a push of another one.
bool CoreForm::IsSendable(const ReceivedPush& push) const {
  const NamedCore* const core = CoreIn(push.keys);
  return core == nullptr || cores_.Knows(core->name);
}

extern const FormEntry kCoreForm = {
    [](const ShardOptions& o) { return o.core.has_value(); },
    [](const ShardOptions& o, const ShardSlices& slices) -> std::shared_ptr<const JobKeys> {
      return std::make_shared<const CoreJobKeys>(o.shape, slices, o.codecs);
    },
    [](const FormContext& context, const ShardOptions& o) -> std::unique_ptr<ExchangeForm> {
      return std::make_unique<CoreForm>(context, *o.core);
    }};

}  // namespace tessera
