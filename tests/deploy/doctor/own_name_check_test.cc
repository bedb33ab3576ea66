// What doctor says of a server's name that is this machine's loopback address.
#include "deploy/doctor/own_name_check.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <string>
#include <vector>

namespace tessera {
namespace {

using Catch::Contains;
using Addresses = std::vector<std::string>;

Findings Check(const std::string& address, const absl::StatusOr<Addresses>& addresses,
               bool listens_outside) {
  return CheckOwnName(
      0, address, [&](const std::string&) { return addresses; },
      [&](int port) {
        CHECK(port == 7921);
        return listens_outside;
      });
}

}  // namespace

TEST_CASE("a server's name that is loopback here is a problem with its remedy", "[doctor]") {
  const Findings found = Check("head:7921", Addresses{"127.0.1.1"}, false);
  REQUIRE(found.size() == 1);
  CHECK(found[0].kind == Finding::Kind::kProblem);
  CHECK_THAT(found[0].what,
             Contains("server 0 at head:7921: \"head\" is 127.0.1.1 on this machine"));
  CHECK_THAT(found[0].advice, Contains("--listen 0.0.0.0:7921"));
}

TEST_CASE("a server that listens elsewhere, too, or a name that others reach is none", "[doctor]") {
  CHECK(Check("head:7921", Addresses{"127.0.1.1"}, true).empty());
  CHECK(Check("head:7921", Addresses{"10.0.0.1"}, false).empty());
  CHECK(Check("head:7921", Addresses{"127.0.1.1", "10.0.0.1"}, false).empty());
  CHECK(Check("head:7921", absl::UnavailableError("unknown"), false).empty());
  // Whoever writes these means it.
  CHECK(Check("127.0.1.1:7921", Addresses{"127.0.1.1"}, false).empty());
  CHECK(Check("localhost:7921", Addresses{"127.0.0.1"}, false).empty());
}

TEST_CASE("who listens on loopback alone does not listen outside", "[doctor]") {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(at);
  REQUIRE(bind(fd, reinterpret_cast<sockaddr*>(&at), size) == 0);
  REQUIRE(getsockname(fd, reinterpret_cast<sockaddr*>(&at), &size) == 0);
  REQUIRE(listen(fd, 4) == 0);
  CHECK_FALSE(ListensOutside(ntohs(at.sin_port), absl::Seconds(1)));
  close(fd);
}

}  // namespace tessera
