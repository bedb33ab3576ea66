// How many rows each worker's minibatches should have where slower workers get smaller ones
// (data.partition: by_speed): all are to take equally long for a step.
//
// A step of s rows takes a + c s, with c how slow the machine is and a what does not depend on rows. With v = 1 / t
// steps per second new sizes are in proportion to s v, the rows per second. Where a is small that is right at once;
// else the difference between any two machines falls each time to the part of it that a has in a step.
// Sizes that follow measured speeds so: Tyagi and Sharma: Taming Resource Heterogeneity In Distributed ML Training With
// Dynamic Batching, ACSOS 2020.
#ifndef TESSERA_SERVER_CONTROL_MEMBERS_BATCH_SIZES_H_
#define TESSERA_SERVER_CONTROL_MEMBERS_BATCH_SIZES_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "common/base/ids.h"
#include "server/control/members/member_table.h"

namespace tessera {

struct MeasuredBatches {
  int64_t rows = 0;             // of each minibatch that it has now; 0: it has none yet
  double rows_per_second = 0;   // 0: not known
  double steps_per_second = 0;  // with minibatches of `rows`; 0: not known
};

// New sizes, whose mean is `batch_size` exactly, within [max(2, batch_size / kBatchLeastPart), batch_size kBatchMost].
// Sizes stay as they are while some speed is not known, or all are as fast as each other within a tenth. Where some
// come or have gone, those whose speed is not known keep their proportions, and who has no size yet gets the mean.
std::vector<int64_t> NextBatchSizes(absl::Span<const MeasuredBatches> workers, int64_t batch_size);

// What the member says of its speed, as far as that can be. It was told last to have minibatches of `rows` (0: it was
// told nothing).
MeasuredBatches BatchesOf(const MemberRecord& member, int64_t rows, int64_t batch_size);

}  // namespace tessera

#endif  // TESSERA_SERVER_CONTROL_MEMBERS_BATCH_SIZES_H_
