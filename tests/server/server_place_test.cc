#include "server/server_place.h"

#include <catch2/catch.hpp>

#include <string>
#include <vector>

#include "absl/strings/match.h"

namespace tessera {
namespace {

v1::Job Counted(int servers) {
  v1::Job job;
  job.mutable_cluster()->mutable_servers()->set_count(servers);
  return job;
}

v1::Job Listed(const std::vector<std::string>& addresses) {
  v1::Job job = Counted(static_cast<int>(addresses.size()));
  for (const std::string& address : addresses) {
    job.mutable_cluster()->mutable_servers()->add_addresses(address);
  }
  return job;
}

const v1::Job kTwo = Listed({"10.0.0.1:7000", "10.0.0.2:7001"});

void IsRefused(const v1::Job& job, const PlaceFlags& flags, const std::string& words,
               bool is_replica = false) {
  const absl::Status status = FindPlace(job, flags, is_replica).status();
  CHECK(absl::IsInvalidArgument(status));
  CHECK(absl::StartsWith(status.message(), words));
}

TEST_CASE("a server that the job lists needs no flags", "[server][place]") {
  const ServerPlace found = FindPlace(kTwo, {1, "", ""}, false).value();
  CHECK(found.listen == "10.0.0.2:7001");
  CHECK(found.announced.empty());
  CHECK(found.coordinator == "10.0.0.1:7000");
}

TEST_CASE("flags come before what the job lists", "[server][place]") {
  const ServerPlace found = FindPlace(kTwo, {1, "10.1.0.2:9", "10.1.0.1:8"}, false).value();
  CHECK(found.listen == "10.1.0.2:9");
  CHECK(found.announced.empty());
  CHECK(found.coordinator == "10.1.0.1:8");
}

TEST_CASE("who listens everywhere is reached where the job says", "[server][place]") {
  for (const char* any : {"0.0.0.0:7001", "[::]:7001"}) {
    const ServerPlace found = FindPlace(kTwo, {1, any, ""}, false).value();
    CHECK(found.listen == any);
    CHECK(found.announced == "10.0.0.2:7001");
  }
  IsRefused(Counted(2), {0, "0.0.0.0:7000", ""},
            "--listen: got \"0.0.0.0:7000\", want an address that the other");
}

TEST_CASE("what is missing is named by its flag", "[server][place]") {
  IsRefused(kTwo, {2, "", ""}, "--rank: got 2, want 0 to 1 (cluster.servers)");
  IsRefused(kTwo, {-1, "", ""}, "--rank: got -1, want 0 to 1");
  IsRefused(Counted(2), {0, "", ""}, "--listen: not given, and cluster.servers is only a count");
  IsRefused(Counted(2), {1, "127.0.0.1:0", ""},
            "--coordinator: not given, and cluster.servers is only a count");
  CHECK(FindPlace(Counted(2), {0, "127.0.0.1:0", ""}, false).value().coordinator.empty());
}

TEST_CASE("a replica may come beyond those that the job lists, and says where it is",
          "[server][place]") {
  CHECK(FindPlace(kTwo, {5, "10.0.0.9:7000", ""}, true).value().coordinator == "10.0.0.1:7000");
  IsRefused(kTwo, {5, "", ""}, "--listen: not given, and cluster.servers has no address of rank 5",
            true);
  IsRefused(kTwo, {256, "10.0.0.9:7000", ""}, "--rank: got 256, want 0 to 255", true);
}

TEST_CASE("server 0 may coordinate, and where servers elect any of them", "[server][place]") {
  v1::Job job = Counted(2);
  CHECK(MayCoordinate(job, 0));
  CHECK_FALSE(MayCoordinate(job, 1));
  job.mutable_cluster()->mutable_coordinator()->add_etcd("10.0.0.1:2379");
  CHECK(MayCoordinate(job, 1));
  CHECK(FindPlace(job, {1, "127.0.0.1:0", ""}, false).ok());
}

}  // namespace
}  // namespace tessera
