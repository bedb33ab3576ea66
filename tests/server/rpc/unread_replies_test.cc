// Who gives way where replies that nobody reads become too many bytes.
#include "server/rpc/unread_replies.h"

#include <catch2/catch.hpp>
#include <memory>
#include <string>
#include <vector>

namespace tessera {
namespace {

constexpr int64_t kCall = UnreadReplies::kCallBytes;

struct FakeCall final : LimitedCall {
  void GiveWay() override { ++gave_way; }
  int gave_way = 0;
};

TEST_CASE("a reply that several calls send counts once", "[rpc][status][strangers]") {
  UnreadReplies unread({1000 + 3 * kCall, 1000 + 3 * kCall});
  const auto text = std::make_shared<const int>(0);
  std::vector<std::shared_ptr<FakeCall>> calls;
  for (int i = 0; i < 3; ++i) {
    calls.push_back(std::make_shared<FakeCall>());
    unread.Add(1, calls.back(), 1000, text);
  }
  CHECK(unread.bytes() == 1000 + 3 * kCall);
  CHECK(unread.given_way() == 0);
  unread.Remove(calls[0].get());
  unread.Remove(calls[0].get());
  CHECK(unread.bytes() == 1000 + 2 * kCall);
  unread.Remove(calls[1].get());
  unread.Remove(calls[2].get());
  CHECK(unread.bytes() == 0);
}

TEST_CASE("the oldest reply of a host gives way where its readers hold too much",
          "[rpc][status][strangers]") {
  UnreadReplies unread({2 * (1000 + kCall), 100 * (1000 + kCall)});
  std::vector<std::shared_ptr<FakeCall>> calls;
  for (int i = 0; i < 5; ++i) {
    calls.push_back(std::make_shared<FakeCall>());
    unread.Add(1, calls.back(), 1000, nullptr);
  }
  const auto other = std::make_shared<FakeCall>();
  unread.Add(2, other, 1000, nullptr);
  CHECK(unread.bytes() == 3 * (1000 + kCall));
  CHECK(other->gave_way == 0);
  for (int i = 0; i < 5; ++i) CHECK(calls[i]->gave_way == (i < 3 ? 1 : 0));
  // It is over by the time that it hears of it.
  unread.Remove(calls[0].get());
  CHECK(unread.bytes() == 3 * (1000 + kCall));
}

TEST_CASE("beyond the bound of all the host that holds the most gives way",
          "[rpc][status][strangers]") {
  UnreadReplies unread({10 * (1000 + kCall), 5 * (1000 + kCall)});
  const auto own = std::make_shared<FakeCall>();
  unread.Add(2, own, 1000, nullptr);
  std::vector<std::shared_ptr<FakeCall>> many;
  for (int i = 0; i < 20; ++i) {
    many.push_back(std::make_shared<FakeCall>());
    unread.Add(1, many.back(), 1000, nullptr);
  }
  CHECK(own->gave_way == 0);
  CHECK(unread.given_way() == 16);
  CHECK(unread.bytes() == 5 * (1000 + kCall));
}

TEST_CASE("a call that sends on counts once", "[rpc][strangers]") {
  UnreadReplies unread({1'000'000, 1'000'000});
  const auto call = std::make_shared<FakeCall>();
  for (int i = 1; i <= 3; ++i) {
    unread.Add(1, call, 1000 * i, nullptr);
    CHECK(unread.bytes() == kCall + 1000 * i);
  }
  unread.Remove(call.get());
  CHECK(unread.bytes() == 0);
}

TEST_CASE("one reply is sent however large it is", "[rpc][status][strangers]") {
  UnreadReplies unread({1000, 1000});
  const auto call = std::make_shared<FakeCall>();
  unread.Add(1, call, 5000, nullptr);
  CHECK(call->gave_way == 0);
  const auto next = std::make_shared<FakeCall>();
  unread.Add(1, next, 6000, nullptr);
  CHECK(call->gave_way == 1);
  CHECK(next->gave_way == 0);
}

}  // namespace
}  // namespace tessera
