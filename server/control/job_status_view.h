// What a job's status says of its members, servers and results (proto/status.proto).
#ifndef TESSERA_SERVER_CONTROL_JOB_STATUS_VIEW_H_
#define TESSERA_SERVER_CONTROL_JOB_STATUS_VIEW_H_

#include "absl/time/time.h"
#include "proto/status.pb.h"
#include "server/control/epochs.h"
#include "server/control/evaluation.h"
#include "server/control/job_facts.h"
#include "server/control/members/membership.h"

namespace tessera {

// Looks at the state of the job and keeps none.
class JobStatusView {
 public:
  // All outlive it.
  JobStatusView(const JobFacts& facts, const Membership& membership, const Epochs& epochs,
                const Evaluation& evaluation)
      : facts_(facts), membership_(membership), epochs_(epochs), evaluation_(evaluation) {}

  void Fill(absl::Time now, v1::JobStatus* status) const;

 private:
  // What the job's file says, and what is constant while it runs.
  void FillFacts(v1::JobStatus* status) const;
  void FillMembers(absl::Time now, v1::JobStatus* status) const;
  void FillMember(const MemberRecord& record, absl::Time now, v1::JobStatus* status) const;
  void FillServers(absl::Time now, v1::JobStatus* status) const;
  void FillHistory(v1::JobStatus* status) const;
  const char* StateWord(const MemberRecord& record) const;

  const JobFacts& facts_;
  const Membership& membership_;
  const Epochs& epochs_;
  const Evaluation& evaluation_;
};

}  // namespace tessera

#endif  // TESSERA_SERVER_CONTROL_JOB_STATUS_VIEW_H_
