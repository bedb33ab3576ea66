#include "deploy/doctor/connections_check.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "common/layout/shard_map.h"
#include "common/rpc/windows.h"
#include "deploy/cli/counted.h"

namespace tessera {
namespace {

// A way over which a connection carries so many bytes a second is no long one.
constexpr double kShortWayRate = 1e9;
// Half a window: with so much for each server an exchange was as fast as a plain socket over 100 and 200 ms, with a
// whole one not always (docs/design/large_models.md).
constexpr int64_t kServerBytesWanted = kWindowBytesMax / 2;

}  // namespace

Findings CheckConnections(const Recipe& recipe, const MeasuredDelay& delay, int servers,
                          int64_t server_bytes) {
  const double rate =
      static_cast<double>(kWindowBytesMax) / absl::ToDoubleSeconds(delay.round_trip);
  if (recipe.placement == Placement::kReplicated || server_bytes <= kWindowBytesMax ||
      rate >= kShortWayRate) {
    return {};
  }
  const int64_t wanted = servers * ((server_bytes + kServerBytesWanted - 1) / kServerBytesWanted);
  return {
      {Finding::Kind::kNote,
       absl::StrCat(delay.address, " is ",
                    absl::StrFormat("%.0f", absl::ToDoubleMilliseconds(delay.round_trip)),
                    " ms away: a connection carries at most ",
                    Bytes(static_cast<double>(kWindowBytesMax)), " in a round trip, ", Bytes(rate),
                    " a second, and an exchange has up to ",
                    Bytes(static_cast<double>(server_bytes)), " for each server"),
       absl::StrCat("where the network carries more, ", wanted, " servers in place of ", servers,
                    ": each has a connection of its own, and several may run on one machine")}};
}

}  // namespace tessera
