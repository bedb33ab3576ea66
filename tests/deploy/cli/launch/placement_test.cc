#include "deploy/cli/launch/placement.h"

#include <catch2/catch.hpp>
#include <set>
#include <string>
#include <vector>

namespace tessera {
namespace {

std::vector<LaunchHost> Hosts(int count) {
  std::vector<LaunchHost> hosts;
  for (int i = 0; i < count; ++i) {
    LaunchHost host;
    host.name = std::string(1, static_cast<char>('a' + i));
    host.address = "10.0.0." + std::to_string(i + 1);
    hosts.push_back(host);
  }
  return hosts;
}

v1::Job JobOf(int servers, int workers) {
  v1::Job job;
  job.mutable_cluster()->mutable_servers()->set_count(servers);
  job.mutable_cluster()->set_workers(workers);
  return job;
}

std::vector<size_t> HostsOf(const std::vector<PlacedProcess>& processes) {
  std::vector<size_t> hosts;
  for (const PlacedProcess& process : processes) hosts.push_back(process.host);
  return hosts;
}

using Ranks = std::vector<size_t>;

TEST_CASE("processes are dealt host by host, and servers get free ports", "[cli][launch]") {
  const auto placed = PlaceJob(JobOf(4, 5), Recipe(), Hosts(3), {{7000}, {}, {}}, 7000);
  REQUIRE(placed.ok());
  CHECK(HostsOf(placed->servers) == Ranks{0, 1, 2, 0});
  CHECK(HostsOf(placed->workers) == Ranks{0, 1, 2, 0, 1});
  CHECK(placed->servers[0].address == "10.0.0.1:7001");
  CHECK(placed->servers[1].address == "10.0.0.2:7000");
  CHECK(placed->servers[3].address == "10.0.0.1:7002");
  CHECK(placed->workers[0].address.empty());
}

TEST_CASE("hosts that are one machine have no port twice", "[cli][launch]") {
  std::vector<LaunchHost> hosts = Hosts(2);
  hosts[1].address = hosts[0].address;
  const auto placed = PlaceJob(JobOf(2, 1), Recipe(), hosts, {{}, {}}, 7000);
  REQUIRE(placed.ok());
  CHECK(placed->servers[0].address == "10.0.0.1:7000");
  CHECK(placed->servers[1].address == "10.0.0.1:7001");
}

TEST_CASE("hosts get the numbers that they name", "[cli][launch]") {
  std::vector<LaunchHost> hosts = Hosts(3);
  hosts[0].servers = 2;
  hosts[0].workers = 0;
  const auto placed = PlaceJob(JobOf(2, 3), Recipe(), hosts, {{}, {}, {}}, 7000);
  REQUIRE(placed.ok());
  CHECK(HostsOf(placed->servers) == Ranks{0, 0});
  CHECK(HostsOf(placed->workers) == Ranks{1, 2, 1});
  CHECK_FALSE(placed->HasWorkers(0));
  CHECK(placed->HasWorkers(2));

  for (LaunchHost& host : hosts) host.workers = 2;
  const auto wrong = PlaceJob(JobOf(2, 3), Recipe(), hosts, {{}, {}, {}}, 7000);
  CHECK(wrong.status().message() ==
        "hosts: workers: they name 6, the job has 3; correct the hosts file or cluster.workers");
}

TEST_CASE(
    "servers of the linear layers are beside the linear workers, the others beside the others",
    "[cli][launch][layers]") {
  Recipe recipe;
  recipe.split.emplace();
  recipe.split->front_workers = 3;
  recipe.split->linear_workers = 2;
  recipe.split->linear_servers = 3;
  std::vector<LaunchHost> hosts = Hosts(5);
  const auto placed = PlaceJob(JobOf(7, 5), recipe, hosts, {{}, {}, {}, {}, {}}, 7000);
  REQUIRE(placed.ok());
  CHECK(HostsOf(placed->workers) == Ranks{0, 1, 2, 3, 4});
  // Four for three workers, and three for two.
  CHECK(HostsOf(placed->servers) == Ranks{0, 1, 2, 0, 3, 4, 3});
  CHECK(placed->servers[3].address == "10.0.0.1:7001");
  CHECK(placed->workers[3].address == "10.0.0.4:7002");
  CHECK(placed->workers[0].address.empty());
  // A host that names a number gets that.
  hosts[0].servers = 7;
  const auto named = PlaceJob(JobOf(7, 5), recipe, hosts, {{}, {}, {}, {}, {}}, 7000);
  REQUIRE(named.ok());
  CHECK(HostsOf(named->servers) == Ranks{0, 0, 0, 0, 0, 0, 0});
  // Workers that do not add up are said, and no more.
  for (LaunchHost& host : hosts) host.workers = 2;
  hosts[0].servers.reset();
  CHECK(PlaceJob(JobOf(7, 5), recipe, hosts, {{}, {}, {}, {}, {}}, 7000).status().message() ==
        "hosts: workers: they name 10, the job has 5; correct the hosts file or cluster.workers");
}

TEST_CASE("servers that the job lists run where it says", "[cli][launch]") {
  v1::Job job = JobOf(2, 1);
  job.mutable_cluster()->mutable_servers()->add_addresses("10.0.0.2:7100");
  job.mutable_cluster()->mutable_servers()->add_addresses("a:7200");
  const auto placed = PlaceJob(job, Recipe(), Hosts(2), {{}, {}}, 7000);
  REQUIRE(placed.ok());
  CHECK(HostsOf(placed->servers) == Ranks{1, 0});
  CHECK(placed->servers[0].address == "10.0.0.2:7100");
  *job.mutable_cluster()->mutable_servers()->mutable_addresses(0) = "10.0.0.9:7100";
  CHECK_FALSE(PlaceJob(job, Recipe(), Hosts(2), {{}, {}}, 7000).ok());
}

TEST_CASE("where servers are replicas each worker is beside its own", "[cli][launch]") {
  Recipe recipe;
  recipe.placement = Placement::kReplicated;
  std::vector<LaunchHost> hosts = Hosts(3);
  hosts[2].servers = 1;
  hosts[0].servers = 2;
  hosts[1].servers = 0;
  const auto placed = PlaceJob(JobOf(3, 3), recipe, hosts, {{}, {}, {}}, 7000);
  REQUIRE(placed.ok());
  CHECK(HostsOf(placed->servers) == HostsOf(placed->workers));
}

TEST_CASE("the table shows what each host has, with the standbys where there are any",
          "[cli][launch]") {
  v1::Job job = JobOf(2, 2);
  job.mutable_cluster()->set_replicas(1);
  const auto placed = PlaceJob(job, Recipe(), Hosts(2), {{}, {}}, 7000);
  REQUIRE(placed.ok());
  CHECK(PlacementTable(Hosts(2), *placed, {"there", "copied"}) ==
        "host  address   servers    standbys of  workers  bundle\n"
        "a     10.0.0.1  0 (:7000)  1            0        there\n"
        "b     10.0.0.2  1 (:7000)  0            1        copied\n");
}

}  // namespace
}  // namespace tessera
