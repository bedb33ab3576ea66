// What is believed of the coordinator's key; tests/server/election has those that need an etcd.
#include "common/etcd/coordinator_key.h"

#include <catch2/catch.hpp>
#include <string>

#include "common/base/utf8.h"

namespace tessera {
namespace {

TEST_CASE("a key of the coordinator that is no address is nobody's, and is told in UTF-8",
          "[etcd][strangers]") {
  CHECK(*CoordinatorAddressIn("k", "10.0.0.1:7000") == "10.0.0.1:7000");
  CHECK(*CoordinatorAddressIn("k", "[fe80::1]:7000") == "[fe80::1]:7000");
  for (const std::string& value : {std::string("\xff\xfe"), std::string("host"),
                                   std::string("a\nb:1"), std::string(100'000, 'x')}) {
    const absl::Status refused = CoordinatorAddressIn("k", value).status();
    CHECK(absl::IsUnavailable(refused));
    CHECK(refused.message().size() < 400);
    CHECK(Utf8PrefixBytes(refused.message()) == refused.message().size());
  }
  CHECK(CoordinatorAddressIn("k", "\xff").status().message() ==
        "etcd's key k is \"\\xff\", want HOST:PORT of the coordinator; others write to this etcd");
}

}  // namespace
}  // namespace tessera
