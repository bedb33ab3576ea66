#include "common/base/ids.h"

#include <catch2/catch.hpp>
#include <limits>
#include <sstream>
#include <type_traits>

#include "absl/container/flat_hash_set.h"

namespace tessera {
namespace {

static_assert(!std::is_convertible_v<uint64_t, Exchange>, "a bare number is no id");
static_assert(!std::is_convertible_v<Version, Exchange>, "ids of different kinds do not mix");
static_assert(!std::is_constructible_v<Rank, MemberId>, "ids of different kinds do not mix");
static_assert(sizeof(MemberId) == sizeof(uint64_t));

TEST_CASE("ids order by value and step by one", "[base][ids]") {
  CHECK(Exchange() == Exchange(0));
  CHECK(Exchange(7).Next() == Exchange(8));
  CHECK(Exchange(7) < Exchange(8));
  CHECK(Exchange(8) >= Exchange(8));
  CHECK(Exchange(8) != Exchange(7));
  CHECK_FALSE(Exchange(8) <= Exchange(7));
}

TEST_CASE("ids print as their number and hash by value", "[base][ids]") {
  std::ostringstream out;
  out << MemberId(std::numeric_limits<uint64_t>::max());
  CHECK(out.str() == "18446744073709551615");
  const absl::flat_hash_set<MemberId> members = {MemberId(1), MemberId(2), MemberId(1)};
  CHECK(members.size() == 2);
}

}  // namespace
}  // namespace tessera
