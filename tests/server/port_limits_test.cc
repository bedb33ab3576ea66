// Held to the table of docs/operating/security.md, What a stranger can do.
#include "server/port_limits.h"

#include <catch2/catch.hpp>

namespace tessera {
namespace {

TEST_CASE("a port takes what the page about operating says", "[server][limits]") {
  v1::Job job;
  job.mutable_cluster()->set_workers(10);
  job.mutable_cluster()->mutable_servers()->set_count(3);
  constexpr int64_t kSlice = 1000;
  const PortLimits limits = PortLimitsOf(job, kSlice);
  CHECK(limits.connections_per_host == 64 + 24 * 10 + 8 * 3);
  CHECK(limits.half_open_pushes_per_host == 64 + 2 * 10);
  CHECK(limits.unread_bytes_per_host == int64_t{104} << 20);
  CHECK(limits.receive_bytes == (int64_t{1} << 30) + 8 * kSlice);
  // A server that may lead all shards.
  job.mutable_cluster()->set_replicas(1);
  CHECK(PortLimitsOf(job, kSlice).receive_bytes == (int64_t{1} << 30) + 3 * 8 * kSlice);
}

}  // namespace
}  // namespace tessera
