// What a host makes of the coordinator's orders.
#include "server/rpc/host_roles.h"

#include <catch2/catch.hpp>

namespace tessera {
namespace {

v1::ShardOrder* Add(v1::HostOrder* order, uint32_t shard, v1::ShardRole role, uint64_t term) {
  v1::ShardOrder* const added = order->add_shards();
  added->set_shard(shard);
  added->set_role(role);
  added->set_term(term);
  if (role == v1::LEAD) added->set_lead_term(term);
  return added;
}

TEST_CASE("an order that says the same again changes nothing", "[standby]") {
  HostRoles roles(2);
  v1::HostOrder order;
  Add(&order, 0, v1::LEAD, 1)->set_standby("there:1");
  Add(&order, 1, v1::FOLLOW, 4);
  const auto first = roles.Take(order);
  REQUIRE(first.ok());
  CHECK(first->lead == std::map<ShardId, uint64_t>{{ShardId(0), 1}});
  CHECK(first->follow == std::map<ShardId, uint64_t>{{ShardId(1), 4}});
  REQUIRE(first->feed.size() == 1);
  CHECK(first->feed[0].standby == "there:1");
  CHECK(roles.Take(order)->is_same);
}

TEST_CASE("an order of a role or shard that there is not is refused, and the last one holds",
          "[standby]") {
  HostRoles roles(2);
  v1::HostOrder order;
  Add(&order, 0, v1::LEAD, 1);
  Add(&order, 1, v1::FOLLOW, 4);
  REQUIRE(roles.Take(order).ok());
  v1::HostOrder wrong = order;
  wrong.mutable_shards(1)->set_term(5);
  SECTION("no role") { Add(&wrong, 1, v1::NO_ROLE, 9); }
  SECTION("a role of a later version") { Add(&wrong, 1, static_cast<v1::ShardRole>(7), 9); }
  SECTION("a shard beyond the job's") { Add(&wrong, 2, v1::LEAD, 9); }
  SECTION("two roles of one shard") { Add(&wrong, 0, v1::FOLLOW, 9); }
  CHECK(absl::IsInvalidArgument(roles.Take(wrong).status()));
  CHECK(roles.Take(order)->is_same);
}

TEST_CASE("a host whose shard another one leads, or has led, must end", "[standby]") {
  HostRoles roles(2);
  v1::HostOrder order;
  Add(&order, 0, v1::LEAD, 1);
  REQUIRE(roles.Take(order).ok());
  SECTION("it leads it no more") { order.clear_shards(); }
  SECTION("it leads it anew") { order.mutable_shards(0)->set_lead_term(3); }
  CHECK(absl::IsFailedPrecondition(roles.Take(order).status()));
}

}  // namespace
}  // namespace tessera
