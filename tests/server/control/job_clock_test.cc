#include "server/control/job_clock.h"

#include <catch2/catch.hpp>

namespace tessera {
namespace {

absl::Time At(int seconds) { return absl::FromUnixSeconds(100 + seconds); }

TEST_CASE("the clock counts from the first start, less the pauses", "[control][clock]") {
  JobClock clock;
  clock.Resume(At(0));
  CHECK(clock.Trained(At(5)) == absl::ZeroDuration());
  clock.Start(At(5));
  clock.Start(At(7));
  CHECK(clock.Trained(At(8)) == absl::Seconds(3));
  clock.Pause(At(9));
  clock.Pause(At(11));
  CHECK(clock.Trained(At(20)) == absl::Seconds(4));
  clock.Resume(At(20));
  clock.Resume(At(21));
  CHECK(clock.Trained(At(22)) == absl::Seconds(6));
  clock.End(At(23));
  clock.Resume(At(24));
  CHECK(clock.Trained(At(30)) == absl::Seconds(7));
}

}  // namespace
}  // namespace tessera
