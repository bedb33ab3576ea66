#include "server/control/lost_parameters.h"

#include "absl/strings/str_cat.h"

namespace tessera {

std::string LostParametersAdvice(const ParameterCopies& copies) {
  const char* const again = "start the job again";
  // Another server follows each shard, so that one alone has none to follow it.
  const bool can_follow = !copies.standbys && copies.servers > 1;
  if (copies.checkpoints) {
    return absl::StrCat(again, ", with checkpoint.restore if one of its checkpoints is whole",
                        can_follow ? "; cluster.replicas: 1 would have kept them" : "");
  }
  return absl::StrCat(again, "; checkpoint.directory", can_follow ? " or cluster.replicas: 1" : "",
                      " would have kept them");
}

}  // namespace tessera
