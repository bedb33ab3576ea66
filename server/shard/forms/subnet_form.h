// Exchanges of subnets: exchange e is round e, and every member of the round is a site (common/keyset/subnet.h). A push
// replaces the site's entries as it is folded, the commit averages the shared ones, and no rule is applied. Values are
// of a round's end only between its commit and the first fold of the next.
//
// A job may end with exchanges of all entries (FormContext::whole_kind), which are folded and applied as they are
// without subnets. Members say so one exchange ahead, so that whoever comes new can be told (whole_tail.h).
#ifndef TESSERA_SERVER_SHARD_FORMS_SUBNET_FORM_H_
#define TESSERA_SERVER_SHARD_FORMS_SUBNET_FORM_H_

#include <memory>
#include <optional>
#include <variant>

#include "server/shard/forms/dense_form.h"
#include "server/shard/forms/exchange_form.h"
#include "server/shard/forms/subnet_rounds.h"
#include "server/shard/forms/whole_tail.h"

namespace tessera {

// The keys of such a job.
class SubnetJobKeys final : public JobKeys {
 public:
  SubnetJobKeys(const ModelShape& shape, const ShardSlices& slices, const CodecChoice& codecs,
                bool takes_whole)
      : JobKeys(shape, slices, codecs), takes_whole_(takes_whole) {}

  absl::StatusOr<std::shared_ptr<const ExchangedEntries>> OfPush(const NamedKeys& keys,
                                                                 uint64_t summed) const override;
  bool moves_parts() const override { return true; }

 private:
  const bool takes_whole_;
};

class SubnetForm final : public ExchangeForm {
 public:
  SubnetForm(const FormContext& context, NeuronGroups groups);

  absl::StatusOr<Found> EntriesOf(const ReceivedPush& push) override;
  absl::Status CheckTogether(const ReceivedPush& push) const override;
  void OnAccepted(const ReceivedPush& push, const ExchangedEntries& entries) override;

  void Fold(const StagedPush& push, float weight) override;
  void Commit(const Update& update) override;
  void FoldAndCommit(const StagedPush& push, float weight, const Update& update) override;
  bool holds_sum() const override { return tail_.has_value() && tail_->holds_sum(); }
  bool knows_members() const override { return true; }

  absl::Status CheckRead(const NamedKeys& keys) const override {
    return std::holds_alternative<SubnetPlace>(keys) ? absl::OkStatus()
                                                     : ExchangeForm::CheckRead(keys);
  }
  absl::Status CheckReadTime(Exchange after, Exchange first, const NamedKeys& keys) const override;
  absl::StatusOr<std::optional<std::shared_ptr<const ExchangedEntries>>> EntriesOfRead(
      const PlanMember& member, Exchange after, const NamedKeys& keys) override;

  void EndLoad(const SavedShard& saved) override;
  bool is_whole_next() const override;
  void TakeImage(const Snapshot& now, ImageEvent* image) const override;
  absl::Status SetImage(const ImageEvent& image, ImageReader* values) override;

  int64_t memory_bytes() const override;

 private:
  // The exchanges of all entries, and which they are.
  struct Tail : DenseForm {
    explicit Tail(const FormContext& context) : DenseForm(context, /*is_tail=*/true) {}
    WholeTail exchanges;
  };
  absl::StatusOr<std::shared_ptr<const SiteSubnet>> SiteOf(const ReceivedPush& push,
                                                           const SubnetPlace& place);
  // Cuts the round that is being collected, where that is another one or has other members.
  void OpenRound();

  SubnetRounds rounds_;
  std::optional<Tail> tail_;
  Exchange opened_round_;  // as rounds_ has it, by the plan opened_plan_
  Generation opened_plan_;
};

}  // namespace tessera

#endif  // TESSERA_SERVER_SHARD_FORMS_SUBNET_FORM_H_
