#include "server/control/members/plans.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/log.h"

namespace tessera {

void Plans::SendFirst(Exchange first) {
  parts_.Begin(first, members_, std::nullopt, Exchange(0));
  first_ = generation_.Next();
  Send(0);
}

void Plans::Send(uint64_t settled) {
  generation_ = generation_.Next();
  ++changes_;
  v1::PlanMessage message = Text();
  if (settled != 0) message.set_withdraw(settled);
  Log(LogLevel::kInfo, absl::StrCat("control: plan generation=", generation_.value(),
                                    " members=", message.plan().members_size()));
  outbox_.TellAll(message);
}

v1::PlanMessage Plans::Text() const {
  v1::PlanMessage message;
  v1::Plan& plan = *message.mutable_plan();
  plan.set_generation(generation_.value());
  for (const MemberRecord* member : members_.Counted()) {
    v1::Member& entry = *plan.add_members();
    entry.set_member(member->member.value());
    entry.set_rank(member->rank.value());
    entry.set_first_exchange(member->first_exchange.value());
  }
  for (const auto& [id, member] : members_.all()) {
    if (!IsDepartedSite(member)) continue;
    v1::DepartedSite& site = *plan.add_departed_sites();
    site.set_member(id.value());
    site.set_rank(member.rank.value());
    site.set_first_exchange(member.first_exchange.value());
    site.set_until_exchange(member.site_until->value());
  }
  parts_.Fill(&plan);
  return message;
}

bool Plans::AwaitsRecut() const {
  if (!facts_.subnets) return false;
  for (const auto& [id, member] : members_.all()) {
    if (member.site_until == Exchange(0)) return true;
  }
  return false;
}

bool Plans::IsDepartedSite(const MemberRecord& member) const {
  return member.site_until &&
         (*member.site_until == Exchange(0) || *member.site_until > servers_.LeastCommitted());
}

void Plans::BeginSites(Exchange agreed, const std::optional<Parts::Shares>& shares) {
  for (const auto& [id, member] : members_.all()) {
    if (member.site_until == Exchange(0)) members_.Find(id)->site_until = agreed;
  }
  parts_.Begin(agreed, members_, shares, servers_.LeastCommitted());
  sites_begin_ = agreed;
}

Generation Plans::GoBack(Generation least) {
  sites_begin_ = Exchange();
  parts_.Clear();
  generation_ = std::max(generation_, least).Next();
  ++changes_;
  return generation_;
}

void Plans::Save(v1::MembershipState* state) const {
  parts_.Save(state->mutable_shares());
  state->set_generation(generation_.value());
  state->set_first_plan(first_.value());
  state->set_sites_begin(sites_begin_.value());
}

void Plans::Load(const v1::MembershipState& state) {
  parts_.Load(state.shares());
  generation_ = Generation(state.generation());
  first_ = Generation(state.first_plan());
  sites_begin_ = Exchange(state.sites_begin());
}

}  // namespace tessera
