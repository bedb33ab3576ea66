#include "server/control/members/parts.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/base/log.h"
#include "server/control/members/part_sizes.h"

namespace tessera {
namespace {

// A speed is known once so many minibatches were timed, and for so long.
constexpr uint64_t kStepsTimed = 20;
constexpr double kSecondsTimed = 0.25;

bool IsKnown(double steps_per_second, uint64_t steps) {
  return steps_per_second > 0 && steps >= kStepsTimed &&
         static_cast<double>(steps) >= kSecondsTimed * steps_per_second;
}

// 0: it has none.
uint32_t ShareOf(const PartShares& shares, MemberId member) {
  for (const auto& [other, share] : shares.of) {
    if (other == member) return share;
  }
  return 0;
}

}  // namespace

std::optional<Parts::Shares> Parts::Wanted(const MemberTable& members) const {
  if (!facts_.parts_by_speed || shares_.empty()) return std::nullopt;
  std::vector<MeasuredSite> sites;
  for (const MemberRecord* member : members.Counted()) {
    const v1::Progress& progress = member->progress;
    // A whole round behind it, so that its speed is that of the part in force.
    const bool is_known = progress.exchange() >= shares_.back().first.value() &&
                          IsKnown(progress.steps_per_second(), progress.speed_steps());
    const uint32_t share = ShareOf(shares_.back(), member->member);
    if (!is_known || share == 0) return std::nullopt;
    sites.push_back({share, progress.steps_per_second()});
  }
  const std::optional<std::vector<uint32_t>> next = NextShares(sites, facts_.members_max);
  if (!next.has_value()) return std::nullopt;
  Shares wanted;
  for (size_t i = 0; i < sites.size(); ++i) {
    wanted.push_back({members.Counted()[i]->member, (*next)[i]});
  }
  return wanted;
}

void Parts::Begin(Exchange first, const MemberTable& members, const std::optional<Shares>& wanted,
                  Exchange done) {
  if (!facts_.parts_by_speed || members.Counted().empty()) return;
  PartShares before;
  if (wanted.has_value()) {
    before.of = *wanted;
  } else if (!shares_.empty()) {
    before = shares_.back();
  }
  std::vector<double> sizes;
  double sum = 0;
  int known = 0;
  for (const MemberRecord* member : members.Counted()) {
    sizes.push_back(ShareOf(before, member->member));
    sum += sizes.back();
    known += sizes.back() > 0;
  }
  std::replace(sizes.begin(), sizes.end(), 0.0, known > 0 ? sum / known : 1.0);
  const std::vector<uint32_t> shares = BoundedShares(sizes, facts_.members_max);
  PartShares next;
  next.first = first;
  std::string text;
  for (size_t i = 0; i < shares.size(); ++i) {
    next.of.push_back({members.Counted()[i]->member, shares[i]});
    absl::StrAppend(&text, i == 0 ? "" : ",", shares[i]);
  }
  while (shares_.size() > 1 && shares_[1].first <= done) shares_.erase(shares_.begin());
  while (!shares_.empty() && shares_.back().first >= first) shares_.pop_back();
  shares_.push_back(std::move(next));
  Log(LogLevel::kInfo,
      absl::StrCat("control: parts first_exchange=", first.value(), " shares=", text));
}

void Parts::Fill(v1::Plan* plan) const { Save(plan->mutable_shares()); }

void Parts::Load(const google::protobuf::RepeatedPtrField<v1::PartShares>& state) {
  shares_.clear();
  for (const v1::PartShares& entry : state) {
    PartShares& shares = shares_.emplace_back();
    shares.first = Exchange(entry.first_exchange());
    for (int i = 0; i < std::min(entry.members_size(), entry.shares_size()); ++i) {
      shares.of.push_back({MemberId(entry.members(i)), entry.shares(i)});
    }
  }
}

void Parts::Save(google::protobuf::RepeatedPtrField<v1::PartShares>* state) const {
  for (const PartShares& shares : shares_) {
    v1::PartShares& entry = *state->Add();
    entry.set_first_exchange(shares.first.value());
    for (const auto& [member, share] : shares.of) {
      entry.add_members(member.value());
      entry.add_shares(share);
    }
  }
}

double Parts::PartOf(MemberId member) const {
  if (shares_.empty()) return 0;
  double all = 0;
  for (const auto& [other, share] : shares_.back().of) all += share;
  return ShareOf(shares_.back(), member) / all;
}

}  // namespace tessera
