// The shares of the model that members train, where slower ones get smaller parts: from which round on
// which are in force.
#ifndef TESSERA_SERVER_CONTROL_MEMBERS_PARTS_H_
#define TESSERA_SERVER_CONTROL_MEMBERS_PARTS_H_

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "common/base/ids.h"
#include "common/consistency/plan.h"
#include "proto/coordinator.pb.h"
#include "server/control/job_facts.h"
#include "server/control/members/member_table.h"

namespace tessera {

// Without effect where parts are equal. When a round is agreed on is Membership's.
class Parts {
 public:
  using Shares = std::vector<std::pair<MemberId, uint32_t>>;

  explicit Parts(const JobFacts& facts) : facts_(facts) {}

  // What the members in the plan should have, by their speeds with the parts they have; nullopt: what
  // they have is right, or some have not trained long enough with it.
  std::optional<Shares> Wanted(const MemberTable& members) const;

  // From the agreed round `first` on the members in the plan are the sites, with the shares `wanted`;
  // without that each keeps its own in proportion, and one that has none gets the mean. Replaces what
  // was agreed on for `first` before. Forgets what servers do not need that have all committed `done`.
  void Begin(Exchange first, const MemberTable& members, const std::optional<Shares>& wanted,
             Exchange done);

  // All rounds are to be agreed on anew.
  void Clear() { shares_.clear(); }

  void Fill(v1::Plan* plan) const;

  void Save(google::protobuf::RepeatedPtrField<v1::PartShares>* state) const;
  void Load(const google::protobuf::RepeatedPtrField<v1::PartShares>& state);

  // The part of the hidden neurons that is the member's by what was last agreed; 0: none.
  double PartOf(MemberId member) const;

 private:
  const JobFacts& facts_;
  std::vector<PartShares> shares_;  // by round
};

}  // namespace tessera

#endif  // TESSERA_SERVER_CONTROL_MEMBERS_PARTS_H_
