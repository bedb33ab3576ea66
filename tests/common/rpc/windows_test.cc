#include "common/rpc/windows.h"

#include <string>

#include <catch2/catch.hpp>

namespace tessera {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;

WindowPlan PlanOf(int64_t connections, int64_t bytes, int64_t room) {
  WindowPlan plan;
  plan.Add(connections, bytes);
  plan.Choose(room);
  return plan;
}

TEST_CASE("windows are as wide as the room is, to the byte", "[rpc][windows]") {
  // Two connections of 64 MiB each; an allocator adds an eighth.
  const int64_t following = 2 * 36 * kMiB;
  CHECK(PlanOf(2, 64 * kMiB, following).kind() == Windows::kFollowing);
  CHECK(PlanOf(2, 64 * kMiB, following).bytes() == following);
  const WindowPlan narrow = PlanOf(2, 64 * kMiB, following - 1);
  CHECK(narrow.kind() == Windows::kNarrow);
  CHECK(narrow.bytes() == 0);
  CHECK(narrow.following_bytes() == following);
  CHECK(PlanOf(2, 64 * kMiB, -1).kind() == Windows::kNarrow);
  // A message that is smaller than the widest window lets no more come than it has.
  CHECK(PlanOf(1, 8 * kMiB, 9 * kMiB).kind() == Windows::kFollowing);
  CHECK(PlanOf(1, 8 * kMiB, 9 * kMiB - 1).kind() == Windows::kNarrow);
}

TEST_CASE("what is freed is kept where there is room for it three times over", "[rpc][windows]") {
  const int64_t kept = 3 * 2 * 72 * kMiB + 2 * 32 * kMiB;
  CHECK(PlanOf(2, 64 * kMiB, kept).keeps_freed());
  CHECK(PlanOf(2, 64 * kMiB, kept).bytes() == 2 * 36 * kMiB);
  CHECK_FALSE(PlanOf(2, 64 * kMiB, kept - 1).keeps_freed());
  CHECK(PlanOf(2, 64 * kMiB, kept - 1).kind() == Windows::kFollowing);
}

TEST_CASE("a call has as many connections as there is room for beside", "[rpc][windows]") {
  const int64_t messages = 3 * 2 * 72 * kMiB;
  const int64_t each = 2 * 32 * kMiB;
  CHECK(PlanOf(2, 64 * kMiB, messages + each - 1).stripes() == 1);
  CHECK(PlanOf(2, 64 * kMiB, messages + 2 * each - 1).stripes() == 1);
  const WindowPlan two = PlanOf(2, 64 * kMiB, messages + 2 * each);
  CHECK(two.stripes() == 2);
  // What the limit has beyond its sums is enough for their windows.
  CHECK(two.bytes() == 2 * 36 * kMiB);
  CHECK(PlanOf(2, 64 * kMiB, messages + 100 * each).stripes() == kStripesMax);
}

TEST_CASE("where nothing is planned windows are narrow in any room", "[rpc][windows]") {
  WindowPlan plan;
  plan.Choose(1024 * kMiB);
  CHECK(plan.kind() == Windows::kNarrow);
  CHECK_FALSE(plan.keeps_freed());
  CHECK(plan.stripes() == 1);
  CHECK(plan.following_bytes() == 0);
}

}  // namespace
}  // namespace tessera
