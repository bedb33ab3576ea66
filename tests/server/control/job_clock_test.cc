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

TEST_CASE("the clock knows what it said at times that are past", "[control][clock]") {
  JobClock clock;
  clock.Restore(absl::Seconds(100));
  CHECK(clock.Trained(At(0)) == absl::Seconds(100));
  clock.Start(At(10));
  clock.Pause(At(14));
  clock.Resume(At(20));
  clock.Pause(At(21));
  CHECK(clock.Trained(At(5)) == absl::Seconds(100));
  CHECK(clock.Trained(At(12)) == absl::Seconds(102));
  CHECK(clock.Trained(At(17)) == absl::Seconds(104));
  CHECK(clock.Trained(At(30)) == absl::Seconds(105));
  clock.Resume(At(40));
  CHECK(clock.Trained(At(50)) == absl::Seconds(115));
  CHECK(clock.Trained(At(20)) == absl::Seconds(104));
  clock.End(At(50));
  CHECK(clock.Trained(At(41)) == absl::Seconds(106));
  // Whoever goes on in this one's place knows less of it.
  JobClock loaded;
  loaded.Load(clock.Save());
  CHECK(loaded.Trained(At(60)) == absl::Seconds(115));
  for (int i = 0; i < 200; ++i) {
    JobClock& busy = loaded;
    busy.Pause(At(60 + 2 * i));
    busy.Resume(At(61 + 2 * i));
  }
  CHECK(loaded.Trained(At(1)) == loaded.Trained(At(2)));
}

}  // namespace
}  // namespace tessera
