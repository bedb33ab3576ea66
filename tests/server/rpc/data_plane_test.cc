// Who is refused, of a server that leads several shards.
#include "server/rpc/data_plane.h"

#include <cstdint>
#include <memory>
#include <utility>

#include <catch2/catch.hpp>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/consistency/barrier.h"
#include "common/rule/add.h"
#include "proto/parameter_server.pb.h"
#include "server/shard/shard.h"
#include "server/shard/shard_thread.h"
#include "tests/server/rpc/tiny_shape.h"

namespace tessera {
namespace {

std::unique_ptr<Shard> ShardOf(int number) {
  Shard::Options options;
  options.shape = TinyShape();
  options.shard = ShardId(number);
  options.sharding = 2;
  options.policy = MakeBarrier();
  options.rule = MakeAdd();
  return std::make_unique<Shard>(std::move(options));
}

// What a member hears of whoever leads that shard.
absl::StatusCode Asked(const DataPlanes& planes, uint32_t shard) {
  v1::Caller caller;
  caller.set_job_digest("d1");
  caller.set_member(1);
  caller.set_shard(shard);
  const absl::StatusOr<DataPlane*> plane = planes.Find("pull", caller);
  return plane.ok() ? (*plane)->CheckCaller("pull", caller).code() : absl::StatusCode::kNotFound;
}

TEST_CASE("a shard whose link does not hear the coordinator is refused, whatever another's hears",
          "[service]") {
  ShardThread zero(ShardOf(0)), one(ShardOf(1));
  DataPlanes planes(ShardId(0), "d1", kHalfOpenPushesPerHost, 1 << 20);
  planes.Add(&zero);
  planes.SetAway(ShardId(0), true);
  planes.SetAway(ShardId(1), true);
  // It is served only from now on.
  planes.Add(&one);
  CHECK(Asked(planes, 0) == absl::StatusCode::kUnavailable);
  CHECK(Asked(planes, 1) == absl::StatusCode::kUnavailable);
  planes.SetAway(ShardId(1), false);
  CHECK(Asked(planes, 0) == absl::StatusCode::kUnavailable);
  CHECK(Asked(planes, 1) == absl::StatusCode::kOk);
  planes.SetAway(ShardId(0), false);
  CHECK(Asked(planes, 0) == absl::StatusCode::kOk);
}

}  // namespace
}  // namespace tessera
