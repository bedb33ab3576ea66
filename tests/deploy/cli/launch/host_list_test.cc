#include "deploy/cli/launch/host_list.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

namespace tessera {
namespace {

TEST_CASE("a list of hosts may name users and ssh ports", "[cli][launch]") {
  const auto hosts = ParseHostList("--hosts", "a, tessera@10.0.0.2,c.example:2222,[fd00::1]:22");
  REQUIRE(hosts.ok());
  REQUIRE(hosts->size() == 4);
  CHECK((*hosts)[0].name == "a");
  CHECK((*hosts)[0].target == "a");
  CHECK((*hosts)[0].ssh_port == 0);
  CHECK((*hosts)[1].name == "10.0.0.2");
  CHECK((*hosts)[1].target == "tessera@10.0.0.2");
  CHECK((*hosts)[2].name == "c.example:2222");
  CHECK((*hosts)[2].target == "c.example");
  CHECK((*hosts)[2].ssh_port == 2222);
  CHECK((*hosts)[3].target == "fd00::1");
}

TEST_CASE("a file of hosts has comments, and what each host is", "[cli][launch]") {
  const auto hosts = ParseHostsFile("hosts",
                                    "# three machines\n\n"
                                    "a\taddress=10.0.0.1 servers=1  workers=0 # no data\n"
                                    "root@b:2222 directory=/scratch/t\n");
  REQUIRE(hosts.ok());
  REQUIRE(hosts->size() == 2);
  CHECK((*hosts)[0].address == "10.0.0.1");
  CHECK((*hosts)[0].servers == 1);
  CHECK((*hosts)[0].workers == 0);
  CHECK((*hosts)[1].target == "root@b");
  CHECK((*hosts)[1].directory == "/scratch/t");
  CHECK_FALSE((*hosts)[1].workers.has_value());
}

TEST_CASE("all that is wrong with hosts is said, with its place", "[cli][launch]") {
  const auto hosts = ParseHostsFile("hosts", "a\na\n-oProxyCommand=x\nb:many\nc worker=1\n");
  REQUIRE_FALSE(hosts.ok());
  CHECK(hosts.status().message() ==
        "hosts:2: \"a\" is there twice, want it once\n"
        "hosts:3: got \"-oProxyCommand=x\", want HOST, USER@HOST or HOST:PORT\n"
        "hosts:4: got \"b:many\", want HOST, USER@HOST or HOST:PORT\n"
        "hosts:5: got \"worker=1\", want address=HOST, directory=PATH, servers=N or workers=N");
  CHECK_FALSE(ParseHostList("--hosts", "").ok());
  CHECK_FALSE(ParseHostsFile("hosts", "# nobody\n").ok());
  // A name is a folder's, too.
  CHECK_FALSE(ParseHostList("--hosts", "../a").ok());
}

}  // namespace
}  // namespace tessera
