// Members that ended so long ago that no record of them is kept: what theirs added up to.
#ifndef TESSERA_SERVER_CONTROL_MEMBERS_FORGOTTEN_MEMBERS_H_
#define TESSERA_SERVER_CONTROL_MEMBERS_FORGOTTEN_MEMBERS_H_

#include <cstdint>

#include "proto/coordinator_state.pb.h"
#include "server/control/members/member_record.h"

namespace tessera {

class ForgottenMembers {
 public:
  const v1::ForgottenMembers& sum() const { return sum_; }

  // Adds a member that has ended, which has trained on so many rows since the job last went back.
  void Add(const MemberRecord& record, uint64_t examples);
  // The job goes back to `step`: what they did after it is undone.
  void UndoSince(uint64_t step);

  void Load(const v1::ForgottenMembers& sum) { sum_ = sum; }

 private:
  v1::ForgottenMembers sum_;
};

}  // namespace tessera

#endif  // TESSERA_SERVER_CONTROL_MEMBERS_FORGOTTEN_MEMBERS_H_
