#include "server/shard/forms/subnet_form.h"

#include <algorithm>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "server/shard/forms/form_entry.h"

namespace tessera {
namespace {

using Entries = std::shared_ptr<const ExchangedEntries>;

const SubnetPlace* PlaceOf(const ReceivedPush& push) {
  return std::get_if<SubnetPlace>(&push.keys);
}

WholeTail::Push TailPushOf(const ReceivedPush& push) {
  // After a whole push the next one is whole, too: the job does not return to subnets.
  const bool is_whole = PlaceOf(push) == nullptr;
  return {push.exchange, is_whole, is_whole || push.whole_next};
}

}  // namespace

absl::StatusOr<Entries> SubnetJobKeys::OfPush(const NamedKeys& keys, uint64_t summed) const {
  TESSERA_RETURN_IF_ERROR(CheckSummed(keys, summed));
  // Which entries a place means is known only once its round is open, so no form is found here.
  if (std::holds_alternative<SubnetPlace>(keys)) return Entries();
  if (takes_whole_ && std::holds_alternative<AllEntries>(keys)) return Entries(dense());
  return Differ(keys, SubnetPlace());
}

SubnetForm::SubnetForm(const FormContext& context, NeuronGroups groups)
    : ExchangeForm(context),
      rounds_(traits().shape, traits().slices, std::move(groups), traits().seed, traits().codecs) {
  // Subnets have rounds, which need a barrier, and no residual: an entry goes to another site in the next round.
  TESSERA_CHECK(context.collecting() != Exchange(0) && !traits().codecs.holds_back());
  if (context.whole_kind) tail_.emplace(context);
}

void SubnetForm::OpenRound() {
  const Plan& plan = *context().plan;
  const Exchange round = context().collecting();
  // A newer plan may have changed the open round's sites or shares, in which case its subnets are cut anew.
  if (round == opened_round_ && plan.generation == opened_plan_) return;
  opened_round_ = round;
  opened_plan_ = plan.generation;
  const std::vector<MemberId> sites = SitesOf(plan, round);
  rounds_.Open(round, sites, SharesOf(plan, round, sites));
}

absl::StatusOr<ExchangeForm::Found> SubnetForm::EntriesOf(const ReceivedPush& push) {
  // Pushes of the whole model are found by their keys, others by their site.
  TESSERA_ASSIGN_OR_RETURN(Found found, ExchangeForm::EntriesOf(push));
  if (found.entries != nullptr) {
    found.kind = *context().whole_kind;
    return found;
  }
  TESSERA_ASSIGN_OR_RETURN(found.entries, SiteOf(push, *PlaceOf(push)));
  return found;
}

// Rounds are numbered as the exchange that collects them.
absl::StatusOr<std::shared_ptr<const SiteSubnet>> SubnetForm::SiteOf(const ReceivedPush& push,
                                                                     const SubnetPlace& place) {
  const Exchange open = context().collecting();
  // A push of another round is refused and not kept: its subnet was cut from other values.
  if (place.round != push.exchange.value() || push.exchange != open) {
    return absl::FailedPreconditionError(absl::StrCat(Where(push), ": subnet is of round ",
                                                      place.round, ", want round ", open.value(),
                                                      ", which is open; fetch before pushing"));
  }
  OpenRound();
  std::shared_ptr<const SiteSubnet> site = rounds_.Of(push.member);
  if (site == nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat(Where(push), ": not a site of round ", open.value()));
  }
  if (!(site->place() == place)) {
    return absl::FailedPreconditionError(
        absl::StrCat(Where(push), ": subnet is ", DescribeSite(place), ", want ",
                     DescribeSite(site->place()), " in round ", open.value()));
  }
  return site;
}

absl::Status SubnetForm::CheckTogether(const ReceivedPush& push) const {
  if (!tail_) return absl::OkStatus();
  return tail_->exchanges.Check(Where(push), TailPushOf(push));
}

void SubnetForm::OnAccepted(const ReceivedPush& push, const ExchangedEntries&) {
  if (tail_) tail_->exchanges.Take(TailPushOf(push));
}

void SubnetForm::Fold(const StagedPush& push, float weight) {
  if (PlaceOf(push) == nullptr) return tail_->Fold(push, weight);
  rounds_.Fold(static_cast<const SiteSubnet&>(*push.entries), *push.coded, push.payload, weight,
               context().store);
}

void SubnetForm::Commit(const Update& update) {
  // A round collects one kind only: either the tail's sum of whole pushes or the sites' subnets.
  if (holds_sum()) return tail_->Commit(update);
  rounds_.Commit(context().store);
}

void SubnetForm::FoldAndCommit(const StagedPush& push, float weight, const Update& update) {
  if (PlaceOf(push) == nullptr) return tail_->FoldAndCommit(push, weight, update);
  Fold(push, weight);
  Commit(update);
}

// Reads of the whole model may come at any time.
absl::Status SubnetForm::CheckReadTime(Exchange after, Exchange first,
                                       const NamedKeys& keys) const {
  if (!std::holds_alternative<SubnetPlace>(keys)) return absl::OkStatus();
  // The open round or the next one; a joiner's first may be further away.
  const Exchange round = after.Next(), open = context().collecting();
  if (round >= open && round <= std::max(open.Next(), first)) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("round ", open.value(), " is open, want that one or the next"));
}

absl::StatusOr<std::optional<Entries>> SubnetForm::EntriesOfRead(const PlanMember& member,
                                                                 Exchange after,
                                                                 const NamedKeys& keys) {
  if (!std::holds_alternative<SubnetPlace>(keys)) {
    return ExchangeForm::EntriesOfRead(member, after, keys);
  }
  const Exchange round = after.Next();
  // The round after the open one is not cut yet: the read waits.
  if (round != context().collecting()) return std::optional<Entries>();
  // The last rounds are of the whole model; the answer has no subnet and says so.
  if (tail_ && tail_->exchanges.IsWhole(round)) return std::make_optional(Entries());
  OpenRound();
  std::shared_ptr<const SiteSubnet> site = rounds_.Of(member.member);
  if (site != nullptr) return std::make_optional(Entries(std::move(site)));
  return absl::FailedPreconditionError(absl::StrCat(
      "not a site of that round, want ", member.first_exchange.value(), " or a later one"));
}

bool SubnetForm::is_whole_next() const {
  return tail_ && tail_->exchanges.IsWhole(context().collecting());
}

void SubnetForm::EndLoad(const SavedShard& saved) {
  // A checkpoint whose next exchange was to be whole goes on with that one.
  if (!tail_ || !saved.whole_next) return;
  tail_->exchanges.Take({saved.exchange, /*is_whole=*/false, /*is_whole_next=*/true});
}

void SubnetForm::TakeImage(const Snapshot&, ImageEvent* image) const {
  if (tail_) image->whole_from = tail_->exchanges.whole_from();
}

absl::Status SubnetForm::SetImage(const ImageEvent& image, ImageReader*) {
  // Subnets follow from seed, round and plan, so an image need not have any.
  if (tail_) tail_->exchanges.SetWholeFrom(image.whole_from);
  return absl::OkStatus();
}

int64_t SubnetForm::memory_bytes() const {
  return rounds_.memory_bytes() + (tail_ ? tail_->memory_bytes() : 0);
}

extern const FormEntry kSubnetForm = {
    [](const ShardOptions& o) { return o.groups.has_value(); },
    [](const ShardOptions& o, const ShardSlices& slices) -> std::shared_ptr<const JobKeys> {
      return std::make_shared<const SubnetJobKeys>(o.shape, slices, o.codecs,
                                                   o.whole_kind.has_value());
    },
    [](const FormContext& context, const ShardOptions& o) -> std::unique_ptr<ExchangeForm> {
      return std::make_unique<SubnetForm>(context, *o.groups);
    }};

}  // namespace tessera
