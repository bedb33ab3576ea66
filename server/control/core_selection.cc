#include "server/control/core_selection.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/keyset/core_share.h"
#include "server/core/core_messages.h"

namespace tessera {

void CoreSelection::Begin() {
  if (!facts_.core) return;
  CoreAgreement::Options options;
  options.servers = facts_.servers;
  options.parameters = facts_.parameters;
  options.entries = static_cast<uint64_t>(facts_.entries);
  options.core_entries = static_cast<uint64_t>(CoreCount(*facts_.core, facts_.entries));
  options.gradient_weight = facts_.core->gradient_weight;
  if (agreement_) changes_ += agreement_->changes() + 1;
  agreement_.emplace(options);
}

void CoreSelection::OnReport(ShardId server, const v1::CoreReport& report) {
  if (!agreement_) return;
  for (const auto& [to, question] : agreement_->OnReport(server, FromMessage(report))) {
    v1::PlanMessage asked;
    *asked.mutable_core_question() = ToMessage(question);
    questions_.push_back({to, std::move(asked)});
  }
}

std::vector<std::string> CoreSelection::WaitingFor() const {
  std::vector<std::string> names;
  if (!agreement_) return names;
  for (const ShardId server : agreement_->Missing()) {
    names.push_back(absl::StrCat("server ", server.value(), " to select the core"));
  }
  return names;
}

void CoreSelection::TakeQuestions(std::vector<Outgoing>* outbox) {
  for (Outgoing& question : std::exchange(questions_, {})) outbox->push_back(std::move(question));
}

void CoreSelection::Save(v1::CoordinatorState* state) const {
  if (agreement_) *state->mutable_core() = agreement_->Save();
}

absl::Status CoreSelection::Load(const v1::CoordinatorState& state) {
  if (state.has_core() != agreement_.has_value()) {
    return absl::InvalidArgumentError("it selects a core where the job does not, or the reverse");
  }
  return agreement_ ? agreement_->Load(state.core()) : absl::OkStatus();
}

}  // namespace tessera
