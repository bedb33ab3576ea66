#include "common/rpc/call_limit.h"

#include <catch2/catch.hpp>
#include <memory>
#include <vector>

namespace tessera {
namespace {

struct Call final : LimitedCall {
  void GiveWay() override { ++gave_way; }
  int gave_way = 0;
};

std::vector<std::shared_ptr<Call>> Calls(int count) {
  std::vector<std::shared_ptr<Call>> calls;
  for (int i = 0; i < count; ++i) calls.push_back(std::make_shared<Call>());
  return calls;
}

TEST_CASE("the oldest call gives way to one that is too many, and no other", "[call_limit]") {
  CallLimit limit(2);
  const auto calls = Calls(4);
  for (int i = 0; i < 2; ++i) limit.Add(7, calls[i]);
  CHECK(calls[0]->gave_way == 0);
  limit.Add(7, calls[2]);
  CHECK(calls[0]->gave_way == 1);
  CHECK(calls[1]->gave_way == 0);
  limit.Add(7, calls[3]);
  CHECK(calls[0]->gave_way == 1);
  CHECK(calls[1]->gave_way == 1);
  CHECK(calls[2]->gave_way == 0);
  CHECK(limit.open(7) == 2);
  CHECK(limit.given_way() == 2);
}

TEST_CASE("calls of one owner never give way to another's", "[call_limit]") {
  CallLimit limit(1);
  const auto calls = Calls(3);
  limit.Add(1, calls[0]);
  limit.Add(2, calls[1]);
  limit.Add(2, calls[2]);
  CHECK(calls[0]->gave_way == 0);
  CHECK(calls[1]->gave_way == 1);
}

TEST_CASE("a call that is over leaves its place, whatever became of it", "[call_limit]") {
  CallLimit limit(1);
  auto calls = Calls(3);
  limit.Add(1, calls[0]);
  limit.Remove(1, calls[0].get());
  limit.Remove(1, calls[0].get());
  limit.Remove(9, calls[0].get());
  CHECK(limit.open(1) == 0);
  limit.Add(1, calls[1]);
  // It ends without a word, as if its network had broken.
  calls[1].reset();
  limit.Add(1, calls[2]);
  CHECK(calls[2]->gave_way == 0);
  CHECK(limit.open(1) == 1);
}

TEST_CASE("all connections of one host have its number", "[call_limit]") {
  CHECK(NumberOfHost("ipv4:10.0.0.1:4711") == NumberOfHost("ipv4:10.0.0.1:4712"));
  CHECK(NumberOfHost("ipv4:10.0.0.1:4711") != NumberOfHost("ipv4:10.0.0.2:4711"));
  CHECK(NumberOfHost("ipv6:%5B::1%5D:1") == NumberOfHost("ipv6:%5B::1%5D:2"));
}

}  // namespace
}  // namespace tessera
