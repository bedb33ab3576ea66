#include "common/base/host_port.h"

#include <catch2/catch.hpp>

namespace tessera {
namespace {

TEST_CASE("an address that can be called is a host and a port that exists", "[host_port]") {
  for (const char* good :
       {"a:1", "10.0.0.1:7000", "server-0.example:65535", "[::1]:7000", "[fe80::1]:1",
        "[fe80::1%eth0]:1", "[::ffff:10.0.0.1]:1", "my_host:80"}) {
    INFO(good);
    CHECK(IsHostPort(good));
    CHECK(ParseHostPort(good)->ToString() == good);
  }
  for (const char* bad : {"",
                          "a",
                          "a:",
                          ":1",
                          "a:0",
                          "a:65536",
                          "a:-1",
                          "a:+1",
                          "a: 1",
                          "a:1x",
                          "a b:1",
                          "::1:7000",
                          "[]:1",
                          "[::1]",
                          "[g::1]:1",
                          "[10.0.0.1]:1",
                          "[::1%]:1",
                          "[::1%a b]:1",
                          "a:99999999999",
                          "http://a:1"}) {
    INFO(bad);
    CHECK_FALSE(IsHostPort(bad));
  }
}

TEST_CASE("port 0 is one to listen at, of a host without brackets", "[host_port]") {
  const absl::optional<HostPort> v4 = ParseHostPort("127.0.0.1:0"), v6 = ParseHostPort("[::1]:0");
  REQUIRE(v4.has_value());
  REQUIRE(v6.has_value());
  CHECK(v4->host == "127.0.0.1");
  CHECK(v6->host == "::1");
  CHECK(v6->port == 0);
}

TEST_CASE("what only this machine can reach", "[host_port]") {
  for (const char* address : {"127.0.0.1:7000", "localhost:0", "LocalHost:1", "[::1]:7000",
                              "[0:0::1]:1", "127.9.9.9:1", "localhost.:1"}) {
    INFO(address);
    CHECK(IsLoopback(address));
  }
  for (const char* address :
       {"0.0.0.0:7000", "[::]:7000", "10.0.0.1:7000", "example.org:1", "localhost.example.org:1",
        "127.example.org:1", "127.0.0.1.example.org:1", ":7000", "127.0.0.1"}) {
    INFO(address);
    CHECK_FALSE(IsLoopback(address));
  }
}

TEST_CASE("an address of no one place is for listening only", "[host_port]") {
  for (const char* address : {"0.0.0.0:7000", "[::]:7000", "[0::0]:1"}) {
    CHECK(IsAnyAddress(address));
  }
  for (const char* address : {"0.0.0.1:7000", "[::1]:7000", "any:1", "0.0.0.0"}) {
    CHECK_FALSE(IsAnyAddress(address));
  }
}

}  // namespace
}  // namespace tessera
