// What a server that holds the whole model knows beside it, and how one comes to hold it in mid-run.
//
//   1. The joining server is added to the list of those that are pushed to. It keeps what comes.
//   2. Once every member has pushed to it, it copies another replica: values, and for every member the
//      last exchange that they contain (the table). A member makes an exchange only when all servers
//      have accepted the one before, so that what was not pushed here is in the copy. The table shows it;
//      if not, the copy is made again.
//   3. Kept pushes that the table contains are dropped, the others are folded.
//
// A member may be long in coming, as it rests for an evaluation. Where much is kept meanwhile, copies are
// made all the same, for what they allow to drop: what one replica has folded the copy of step 2 must
// contain.
//
// From then on it is like the others, but for the order in which pushes were added.
#ifndef TESSERA_SERVER_SHARD_REPLICA_COPYING_H_
#define TESSERA_SERVER_SHARD_REPLICA_COPYING_H_

#include <cstddef>
#include <cstdint>
#include <map>

#include "common/base/ids.h"

namespace tessera {

// A joining server may keep so much, whatever its limit for pushes that wait.
constexpr int64_t kKeptBytesLeast = int64_t{16} << 20;

struct ReplicaTable {
  Version version;
  uint64_t examples = 0;
  // The plan that had been applied: of members that were removed by then no more can come.
  Generation plan;
  // The last exchange of each member that is in the values, those of removed members included.
  std::map<MemberId, Exchange> folded;
};

// The part of a shard's state that there is only where it is a replica.
class ReplicaCopying {
 public:
  // Removed members of which the last exchange is remembered, newest first.
  static constexpr size_t kRemovedMax = 4096;

  bool awaits_copy() const { return awaits_copy_; }
  bool copied() const { return copied_; }
  void AwaitCopy() { awaits_copy_ = !copied_; }
  void SetCopied() {
    awaits_copy_ = false;
    copied_ = true;
  }

  // Of members that were removed.
  void Remember(MemberId member, Exchange folded) {
    removed_[member] = folded;
    if (removed_.size() > kRemovedMax) removed_.erase(removed_.begin());
  }
  const std::map<MemberId, Exchange>& removed() const { return removed_; }

 private:
  bool awaits_copy_ = false;
  bool copied_ = false;
  std::map<MemberId, Exchange> removed_;
};

}  // namespace tessera

#endif  // TESSERA_SERVER_SHARD_REPLICA_COPYING_H_
