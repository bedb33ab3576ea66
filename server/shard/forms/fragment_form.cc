#include "server/shard/forms/fragment_form.h"

#include <string>
#include <variant>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/codec/update_reader.h"
#include "server/shard/forms/form_entry.h"

namespace tessera {
namespace {

using Entries = std::shared_ptr<const ExchangedEntries>;

// A fragment's entries on one shard, which may be none.
class FragmentEntries final : public RunEntries {
 public:
  using RunEntries::RunEntries;
  bool is_nothing() const override { return count() == 0; }
};

std::string Describe(const Fragment& fragment) {
  return absl::StrCat(fragment.number, " of ", fragment.count);
}

}  // namespace

FragmentParts::FragmentParts(int count, const ShardSlices& slices, const ModelShape& shape,
                             const CodecChoice& codecs)
    : JobKeys(shape, slices, codecs) {
  for (int number = 0; number < count; ++number) {
    const Fragment fragment{number, count};
    const ShardSlices owned = SlicesOfFragment(slices, fragment);
    const int64_t begin = BeginOf(slices, fragment);
    fragments_.push_back(std::make_shared<const FragmentEntries>(
        fragment, EntryRun{begin, begin + owned.size}, CodedForms(codecs, owned, shape)));
  }
}

absl::StatusOr<Entries> FragmentParts::Named(const Fragment& fragment) const {
  if (fragment.count == count()) return Entries(fragments_[fragment.number]);
  return absl::InvalidArgumentError(absl::StrCat(
      "fragment is ", Describe(fragment), ", want one of ", count(), "; the job's methods differ"));
}

absl::StatusOr<Entries> FragmentParts::OfPush(const NamedKeys& keys, uint64_t summed) const {
  TESSERA_RETURN_IF_ERROR(CheckSummed(keys, summed));
  if (const auto* fragment = std::get_if<Fragment>(&keys)) return Named(*fragment);
  return absl::InvalidArgumentError(
      absl::StrCat("keys are ", KeysWord(keys), ", want a fragment's; the job's methods differ"));
}

absl::StatusOr<Entries> FragmentParts::OfRead(const NamedKeys& keys) const {
  if (const auto* fragment = std::get_if<Fragment>(&keys)) return Named(*fragment);
  absl::StatusOr<Entries> entries = JobKeys::OfRead(keys);
  if (entries.ok() || !std::holds_alternative<UnknownKeys>(keys)) return entries;
  return absl::InvalidArgumentError(absl::StrCat(entries.status().message(), " or a fragment's"));
}

absl::StatusOr<ExchangeForm::Found> FragmentForm::EntriesOf(const ReceivedPush& push) {
  TESSERA_ASSIGN_OR_RETURN(Found found, DenseForm::EntriesOf(push));
  const Fragment wanted = FragmentOf(push.exchange, count_);
  const Fragment& named = std::get<Fragment>(push.keys);
  if (named == wanted) return found;
  return absl::FailedPreconditionError(
      absl::StrCat(Where(push), ": fragment is ", Describe(named), ", want ", Describe(wanted)));
}

void FragmentForm::Fold(const StagedPush& push, float weight) {
  run_ = *push.entries->run();
  // The first push assigns; what the sum has of other fragments is of earlier exchanges.
  const bool is_first = !std::exchange(holds_sum_, true);
  // A shard with fewer rows than fragments takes part in every exchange, with nothing to add.
  if (push.entries->count() == 0) return;
  UpdateReader reader(push.codec, push.coded, push.payload);
  FoldRun(run_, is_first, weight, &reader, sum());
}

void FragmentForm::Commit(const Update& update) {
  // An update of no push has no fragment either.
  if (!std::exchange(holds_sum_, false) || run_.begin == run_.end) return;
  ApplyRun(run_, update, *sum(), target());
}

void FragmentForm::FoldAndCommit(const StagedPush& push, float weight, const Update& update) {
  run_ = *push.entries->run();
  const bool is_first = !std::exchange(holds_sum_, false);
  if (push.entries->count() == 0) return;
  UpdateReader reader(push.codec, push.coded, push.payload);
  FoldAndApplyRun(run_, is_first, weight, &reader, update, sum(), target());
}

extern const FormEntry kFragmentForm = {
    [](const ShardOptions& o) { return o.fragments.has_value(); },
    [](const ShardOptions& o, const ShardSlices& slices) -> std::shared_ptr<const JobKeys> {
      return std::make_shared<const FragmentParts>(*o.fragments, slices, o.shape, o.codecs);
    },
    [](const FormContext& context, const ShardOptions&) -> std::unique_ptr<ExchangeForm> {
      return std::make_unique<FragmentForm>(
          context, static_cast<const FragmentParts&>(*context.traits->keys));
    }};

}  // namespace tessera
