#include "deploy/doctor/connections_check.h"

#include <catch2/catch.hpp>

#include "absl/time/time.h"

namespace tessera {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;

Findings At(int milliseconds, int servers, int64_t server_bytes,
            Placement placement = Placement::kSharded) {
  Recipe recipe;
  recipe.placement = placement;
  return CheckConnections(recipe, {"10.0.0.1:7000", absl::Milliseconds(milliseconds)}, servers,
                          server_bytes);
}

TEST_CASE("an exchange of more than a window over a long way wants servers of half a window each",
          "[doctor]") {
  const Findings findings = At(100, 2, 64 * kMiB);
  REQUIRE(findings.size() == 1);
  CHECK(findings[0].kind == Finding::Kind::kNote);
  CHECK(findings[0].what ==
        "10.0.0.1:7000 is 100 ms away: a connection carries at most 32.0 MiB in a round trip, "
        "320.0 MiB a second, and an exchange has up to 64.0 MiB for each server");
  CHECK(findings[0].advice ==
        "where the network carries more, 8 servers in place of 2: each has a connection of its "
        "own, and several may run on one machine");
  // A byte more begins another server's share.
  CHECK(At(100, 1, 64 * kMiB + 1).front().advice.find(" 5 servers in place of 1") !=
        std::string::npos);
}

TEST_CASE("nothing is said of a window's worth, of a short way, or where no server has a share",
          "[doctor]") {
  CHECK(At(100, 2, 32 * kMiB).empty());
  CHECK(At(100, 2, 32 * kMiB + 1).size() == 1);
  CHECK(At(33, 2, 64 * kMiB).empty());
  CHECK(At(34, 2, 64 * kMiB).size() == 1);
  CHECK(At(100, 2, 64 * kMiB, Placement::kReplicated).empty());
}

}  // namespace
}  // namespace tessera
