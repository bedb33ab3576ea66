// A job whose workers train different layers (Recipe::split): where they reach each other, and whether both halves of
// the model have somebody who trains them.
#ifndef TESSERA_SERVER_CONTROL_MEMBERS_TRAINED_HALVES_H_
#define TESSERA_SERVER_CONTROL_MEMBERS_TRAINED_HALVES_H_

#include <cstdint>
#include <optional>
#include <string>

#include "proto/coordinator.pb.h"
#include "server/control/job_facts.h"
#include "server/control/members/job_stage.h"
#include "server/control/members/member_pace.h"
#include "server/control/members/member_table.h"
#include "server/control/members/plans.h"

namespace tessera {

class TrainedHalves {
 public:
  // All outlive it.
  TrainedHalves(const JobFacts& facts, const JobStage& stage, const MemberTable& members,
                const Plans& plans)
      : facts_(facts), stage_(stage), members_(members), plans_(plans) {}

  // Workers that servers count, and where others reach them. Its generation is that of the plan.
  v1::WorkerList WorkerListText() const;
  // The member is gone, and is in that list because others may still send to it.
  bool IsFormerWorker(const MemberRecord& member) const {
    return facts_.front_workers > 0 && IsFormerWorker(member, LeastStep(members_));
  }

  // A half of the layers that nobody trains while others train the other half.
  struct Missing {
    // Whose half it was, and that the job is to be started again.
    std::string why;
    // The last worker that trained it left of its own accord.
    bool has_left = false;
  };
  // nullopt: both halves have somebody, or nobody trains at all, which ends the job by itself.
  std::optional<Missing> FindMissing() const;

 private:
  // `least`: the step of the members that are furthest behind.
  bool IsFormerWorker(const MemberRecord& member, uint64_t least) const;

  const JobFacts& facts_;
  const JobStage& stage_;
  const MemberTable& members_;
  const Plans& plans_;
};

}  // namespace tessera

#endif  // TESSERA_SERVER_CONTROL_MEMBERS_TRAINED_HALVES_H_
