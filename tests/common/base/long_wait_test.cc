#include "common/base/long_wait.h"

#include <catch2/catch.hpp>

#include "absl/time/time.h"

namespace tessera {
namespace {

const absl::Time kBegin = absl::UnixEpoch() + absl::Hours(3);

TEST_CASE("a wait is told of once it is long, and then now and then", "[base][wait]") {
  LongWait wait(kBegin, absl::Seconds(2), absl::Seconds(30));
  CHECK_FALSE(wait.IsDue(kBegin));
  CHECK_FALSE(wait.IsDue(kBegin + absl::Milliseconds(1999)));
  CHECK(wait.next() == kBegin + absl::Seconds(2));
  CHECK(wait.IsDue(wait.next()));
  CHECK_FALSE(wait.IsDue(kBegin + absl::Seconds(31)));
  CHECK(wait.next() == kBegin + absl::Seconds(32));
  // Whoever looks late tells of it once, not once for each time that was due.
  CHECK(wait.IsDue(kBegin + absl::Minutes(5)));
  CHECK_FALSE(wait.IsDue(kBegin + absl::Minutes(5) + absl::Seconds(29)));
}

TEST_CASE("how long a wait has lasted is said in whole seconds", "[base][wait]") {
  LongWait wait(kBegin, absl::Seconds(10));
  CHECK(wait.IsDue(kBegin + absl::Seconds(10)));
  CHECK(wait.SoFar(kBegin + absl::Milliseconds(10999)) == "10s");
  CHECK(wait.SoFar(kBegin + absl::Milliseconds(72500)) == "1m12s");
}

}  // namespace
}  // namespace tessera
