#include "server/monitor/last_scrape.h"

#include <catch2/catch.hpp>
#include <thread>

#include "common/base/steady_clock.h"

namespace tessera {
namespace {

v1::JobStatus In(const char* state) {
  v1::JobStatus status;
  status.set_state(state);
  return status;
}

TEST_CASE("the wait ends with a status of the job's end, also one that was sent before it",
          "[monitor]") {
  for (const bool is_before : {true, false}) {
    LastScrape last;
    last.OnSent(In("training"));
    if (is_before) last.OnSent(In("done"));
    std::thread scrapes([&] {
      if (!is_before) last.OnSent(In("done"));
    });
    last.Await(absl::Hours(1));
    scrapes.join();
  }
}

TEST_CASE("statuses of before the end do not end the wait, nor is a limit of 0 one", "[monitor]") {
  LastScrape last;
  for (const char* state : {"training", "draining", ""}) last.OnSent(In(state));
  const absl::Time begin = SteadyNow();
  last.Await(absl::Milliseconds(50));
  CHECK(SteadyNow() - begin >= absl::Milliseconds(50));
  LastScrape none;
  none.Await(absl::ZeroDuration());
}

TEST_CASE("whoever asks the process to end does not wait for a scrape", "[monitor]") {
  LastScrape before;
  CHECK_FALSE(before.OnAskedToEnd());
  before.Await(absl::Hours(1));
  CHECK_FALSE(before.OnAskedToEnd());
  LastScrape meanwhile;
  std::thread waits([&] { meanwhile.Await(absl::Hours(1)); });
  meanwhile.OnAskedToEnd();
  waits.join();
}

}  // namespace
}  // namespace tessera
