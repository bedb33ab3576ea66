#include "server/shard/forms/exchange_form.h"

#include <variant>

#include "absl/strings/str_cat.h"

namespace tessera {

std::string Where(const ReceivedPush& push) {
  return absl::StrCat("push from member ", push.member.value(), " exchange ",
                      push.exchange.value());
}

absl::StatusOr<ExchangeForm::Found> ExchangeForm::EntriesOf(const ReceivedPush& push) {
  absl::StatusOr<std::shared_ptr<const ExchangedEntries>> entries =
      traits().keys->OfPush(push.keys, push.summed);
  if (entries.ok()) return Found{*std::move(entries), context_.kind};
  return absl::InvalidArgumentError(absl::StrCat(Where(push), ": ", entries.status().message()));
}

absl::Status ExchangeForm::CheckRead(const NamedKeys& keys) const {
  if (std::holds_alternative<SubnetPlace>(keys)) {
    return absl::InvalidArgumentError("the job's method trains no subnets, want a pull");
  }
  if (std::holds_alternative<NamedCore>(keys)) {
    return absl::InvalidArgumentError("keys are sparse, want dense");
  }
  return absl::OkStatus();
}

absl::StatusOr<std::optional<std::shared_ptr<const ExchangedEntries>>> ExchangeForm::EntriesOfRead(
    const PlanMember& member, Exchange after, const NamedKeys& keys) {
  absl::StatusOr<std::shared_ptr<const ExchangedEntries>> entries = traits().keys->OfRead(keys);
  if (!entries.ok()) return entries.status();
  return std::make_optional(*std::move(entries));
}

}  // namespace tessera
