// Whether a worker may join a job: what it says of itself against the job and the workers that are there.
#ifndef TESSERA_SERVER_CONTROL_MEMBERS_JOIN_CHECK_H_
#define TESSERA_SERVER_CONTROL_MEMBERS_JOIN_CHECK_H_

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/ids.h"
#include "proto/coordinator.pb.h"
#include "server/control/job_facts.h"
#include "server/control/members/member_table.h"

namespace tessera {

class JoinCheck {
 public:
  // Both outlive it.
  JoinCheck(const JobFacts& facts, const MemberTable& members) : facts_(facts), members_(members) {}

  // The rank that the worker gets: the one that it wants, else the lowest that is free.
  //   kInvalidArgument    digest, layout, protocol, rank, rows, values or address are not the job's
  //   kAlreadyExists      a live member holds the wanted rank, or all ranks are held
  //   kResourceExhausted  too many workers have joined
  absl::StatusOr<Rank> Check(const v1::JoinRequest& request, absl::Time now) const;

 private:
  absl::Status CheckRequest(const v1::JoinRequest& request) const;
  absl::Status CheckRows(const v1::JoinRequest& request) const;
  // Refuses data of another kind than that of live members.
  absl::Status CheckValues(const v1::JoinRequest& request) const;
  // Refuses ranks and addresses that do not fit where workers train different layers.
  absl::Status CheckLayers(Rank rank, const v1::JoinRequest& request) const;
  absl::StatusOr<Rank> ChooseRank(const v1::JoinRequest& request, absl::Time now) const;

  const JobFacts& facts_;
  const MemberTable& members_;
};

}  // namespace tessera

#endif  // TESSERA_SERVER_CONTROL_MEMBERS_JOIN_CHECK_H_
