#include "server/control/members/lost_residuals.h"

#include <vector>

#include "common/checkpoint/manifest.h"

namespace tessera {

// Follows how WorkerSaver deals residuals to workers, or leaves each to its rank. Those who were lost before the job
// went back were counted then. A manifest does not tell halves of the layers apart: where restore has dealt residuals
// within each half, another worker than the one who takes it may be counted.
void LostResiduals::OnStart(const StartingPoint& start, const StartList& start_list,
                            const MemberTable& members) {
  const SavedState* const from = start.begun_from();
  if (!facts_.holds_back || from == nullptr) return;
  const auto workers = static_cast<uint64_t>(facts_.workers);
  const bool is_dealt = from->from_restore && !from->manifest.HasRanks(workers);
  for (const CheckpointMember& member : from->manifest.members) {
    if (!start_list.WasMember(Rank(member.rank))) continue;
    const uint64_t taker = is_dealt ? member.rank % workers : member.rank;
    if (members.LiveAt(Rank(taker)) != nullptr) continue;
    ++count_;
    ++changes_;
  }
}

}  // namespace tessera
