#include "server/control/lost_parameters.h"

#include <catch2/catch.hpp>

namespace tessera {
namespace {

TEST_CASE("lost parameters name the keys that would have kept them, and none that the job has",
          "[control]") {
  CHECK(LostParametersAdvice({false, false, 2}) ==
        "start the job again; checkpoint.directory or cluster.replicas: 1 would have kept them");
  CHECK(LostParametersAdvice({false, true, 2}) ==
        "start the job again; checkpoint.directory would have kept them");
  // Nobody could follow the only server.
  CHECK(LostParametersAdvice({false, false, 1}) ==
        "start the job again; checkpoint.directory would have kept them");
  CHECK(LostParametersAdvice({true, false, 2}) ==
        "start the job again, with checkpoint.restore if one of its checkpoints is whole; "
        "cluster.replicas: 1 would have kept them");
  CHECK(LostParametersAdvice({true, true, 2}) ==
        "start the job again, with checkpoint.restore if one of its checkpoints is whole");
}

}  // namespace
}  // namespace tessera
