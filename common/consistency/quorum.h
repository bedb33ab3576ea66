// Quorum: an update, here a round, closes when enough members have a push in it.
//
//   OnPush     weighted by examples (example_mean.h); joins the round that is being collected
//   closes     when every member that could still push has, or when `pushes` members have and the grace
//              has passed since the last of those came: a fixed time, or one for each of the missing
//              members that is learned from how late they come (adaptive_grace.h)
//   MayRead    after <= rounds closed; at once for a member that has not pushed yet
//
// So a member waits for the round of its own number, or for a later one that it was the first to
// reach. A push that comes when the round of its number has closed is late: it joins the round being
// collected, and its worker does not wait for that one. A member counts once in a round, though a late one
// may have several pushes in it. Members that rest, were removed, or begin with a later round are not
// waited for.
//
// Nobody waits for ever, also where servers close their rounds with different members. Suppose that
// all who are awake wait, and let e be the least of their exchanges, waiting at some server. That
// server has closed fewer than e rounds. All pushes are of exchanges >= e, and none is in a round of
// a smaller number than its own: so all of them are in the round that is open there, and it closes.
// (If late workers waited for their rounds, two of three would do for a deadlock over three servers:
// each server closes a round with another pair, and each worker is the third at one of them.)
//
// Quorum form of DiLoCo: arXiv 2604.21428.
#ifndef TESSERA_COMMON_CONSISTENCY_QUORUM_H_
#define TESSERA_COMMON_CONSISTENCY_QUORUM_H_

#include <cstdint>
#include <memory>

#include "absl/time/time.h"
#include "common/consistency/policy.h"

namespace tessera {

struct QuorumOptions {
  // 1 <= pushes.
  int64_t pushes = 1;
  // How long a round that has them stays open for the others; where that is learned, at most so long if it is not 0.
  absl::Duration grace;
  bool adaptive_grace = false;
  // Exchanges go on beside training: a round that stays open holds nobody up at once.
  bool beside = false;
  // Pushes weigh by the squares of their examples.
  bool squared_examples = false;
};

std::unique_ptr<ConsistencyPolicy> MakeQuorum(const QuorumOptions& options);

}  // namespace tessera

#endif  // TESSERA_COMMON_CONSISTENCY_QUORUM_H_
