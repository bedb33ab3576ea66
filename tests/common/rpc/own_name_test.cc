// Names that are not known yet, or mean this machine alone.
#include "common/rpc/own_name.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

namespace tessera {
namespace {

using Catch::Contains;
using Addresses = std::vector<std::string>;

struct Name {
  // The resolver's answers, one after the other; the last one stays.
  std::vector<absl::StatusOr<Addresses>> answers;
  int asked = 0;

  absl::Status Await(const std::string& address, absl::Duration patience = absl::Seconds(20)) {
    return AwaitOwnName(
        {"server", address, ListenEverywhere(address), patience, [this](const std::string& host) {
           CHECK(host == "head");
           const size_t at = static_cast<size_t>(asked++);
           return answers[std::min(at, answers.size() - 1)];
         }});
  }
};

const absl::Status kUnknown = absl::UnavailableError("Name or service not known");

}  // namespace

TEST_CASE("a name that is known later is waited for", "[rpc][own_name]") {
  Name name{{kUnknown, kUnknown, Addresses{"10.0.0.1"}}};
  CHECK(name.Await("head:7000").ok());
  CHECK(name.asked == 3);
}

TEST_CASE("a name that never comes is given up, with the reason and the way out",
          "[rpc][own_name]") {
  Name name{{kUnknown}};
  const absl::Status refused = name.Await("head:7000", absl::Seconds(2));
  CHECK(absl::IsInvalidArgument(refused));
  CHECK_THAT(std::string(refused.message()),
             Contains("host of \"head:7000\" is not known here: Name or service not known; waited "
                      "for 2s; correct the name, or start it with --listen 0.0.0.0:7000"));
  CHECK(name.asked > 1);
}

TEST_CASE("what is an address, or says itself that it is loopback, is not asked for",
          "[rpc][own_name]") {
  Name name{{kUnknown}};
  for (const char* address :
       {"10.0.0.1:7000", "[::1]:7000", "[fe80::1%eth0]:7000", "localhost:7000", "0.0.0.0:0", "x"}) {
    CHECK(name.Await(address).ok());
  }
  CHECK(name.asked == 0);
}

TEST_CASE("addresses are loopback where all of them are", "[rpc][own_name]") {
  CHECK(AreLoopback({"127.0.1.1"}));
  CHECK(AreLoopback({"127.0.0.1", "::1"}));
  CHECK_FALSE(AreLoopback({"127.0.1.1", "10.0.0.1"}));
  CHECK_FALSE(AreLoopback({}));
}

TEST_CASE("the system knows this machine's name for itself, and not what is reserved for nobody",
          "[rpc][own_name]") {
  const absl::StatusOr<Addresses> here = ResolveHost("localhost");
  REQUIRE(here.ok());
  CHECK(AreLoopback(*here));
  CHECK(*ResolveHost("::1") == Addresses{"::1"});
  CHECK(absl::IsUnavailable(ResolveHost("nowhere.invalid").status()));
}

}  // namespace tessera
