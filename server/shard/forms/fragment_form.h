// Exchanges where all members push one fragment of the model, and the next exchange is of the next
// fragment: the rule is applied to the fragment's entries, and the others stay as they are.
#ifndef TESSERA_SERVER_SHARD_FORMS_FRAGMENT_FORM_H_
#define TESSERA_SERVER_SHARD_FORMS_FRAGMENT_FORM_H_

#include <memory>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "common/layout/fragment.h"
#include "server/shard/forms/dense_form.h"

namespace tessera {

// The keys of a job whose exchanges move fragments. Which one a push may name depends on its exchange,
// which the form checks.
class FragmentParts final : public JobKeys {
 public:
  // `slices` are all that the shard owns of `shape`.
  FragmentParts(int count, const ShardSlices& slices, const ModelShape& shape,
                const CodecChoice& codecs);

  absl::StatusOr<std::shared_ptr<const ExchangedEntries>> OfPush(const NamedKeys& keys,
                                                                 uint64_t summed) const override;
  bool moves_parts() const override { return true; }
  absl::StatusOr<std::shared_ptr<const ExchangedEntries>> OfRead(
      const NamedKeys& keys) const override;

  int count() const { return static_cast<int>(fragments_.size()); }

 private:
  absl::StatusOr<std::shared_ptr<const ExchangedEntries>> Named(const Fragment& fragment) const;

  std::vector<std::shared_ptr<const RunEntries>> fragments_;
};

class FragmentForm final : public DenseForm {
 public:
  // `parts` are the traits' keys.
  FragmentForm(FormContext context, const FragmentParts& parts)
      : DenseForm(std::move(context), /*is_tail=*/false), count_(parts.count()) {}

  absl::StatusOr<Found> EntriesOf(const ReceivedPush& push) override;
  void Fold(const StagedPush& push, float weight) override;
  void Commit(const Update& update) override;
  void FoldAndCommit(const StagedPush& push, float weight, const Update& update) override;
  bool holds_sum() const override { return holds_sum_; }
  // A standby would take a sum for one of all entries.
  bool sums_pushes() const override { return false; }

 private:
  const int count_;
  // What the pushes that were folded are of; nothing where they have no entries here.
  EntryRun run_;
  bool holds_sum_ = false;
};

}  // namespace tessera

#endif  // TESSERA_SERVER_SHARD_FORMS_FRAGMENT_FORM_H_
