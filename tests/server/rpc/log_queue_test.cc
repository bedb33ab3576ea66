// The log on its way to the standby: what may be acknowledged of it.
#include "server/rpc/log_queue.h"

#include <memory>
#include <string>

#include <catch2/catch.hpp>

namespace tessera {
namespace {

LogQueue::Entry EntryOf(uint64_t position, int64_t bytes) {
  LogQueue::Entry entry;
  entry.entry.set_position(position);
  entry.entry.set_withdraw(1);
  const auto values = std::make_shared<const std::string>(static_cast<size_t>(bytes), 'v');
  entry.payload.Append({values->data(), bytes}, values);
  return entry;
}

struct Queue : LogQueue {
  Queue() : LogQueue({}, 1 << 20, absl::Seconds(10)) { Begin(false, absl::UnixEpoch()); }
  void AddEntry(uint64_t position, int64_t bytes) {
    Add(EntryOf(position, bytes), absl::UnixEpoch());
  }
  bool Acknowledge(uint64_t position) { return OnAcknowledged(position, absl::UnixEpoch()); }
};

TEST_CASE("what was sent whole may be acknowledged, in order and again", "[standby]") {
  Queue queue;
  queue.AddEntry(1, 0);
  queue.AddEntry(2, 8);
  queue.AddEntry(3, 0);
  REQUIRE(queue.Next(4).has_value());
  CHECK(queue.Acknowledge(0));
  CHECK(queue.Acknowledge(1));
  REQUIRE(queue.Next(100).has_value());
  CHECK(queue.Acknowledge(2));
  CHECK(queue.Acknowledge(2));
  REQUIRE(queue.Next(100).has_value());
  CHECK(queue.Acknowledge(3));
  CHECK(!queue.broken());
}

TEST_CASE("an acknowledgement that cannot be breaks the stream in words", "[standby]") {
  Queue queue;
  queue.AddEntry(1, 0);
  queue.AddEntry(2, 8);
  SECTION("of an entry that was not sent") {
    CHECK(!queue.Acknowledge(1));
    CHECK(queue.report().broken() == "the standby acknowledged entry 1, want one from 0 to 0");
  }
  SECTION("of an entry that was sent in part") {
    REQUIRE(queue.Next(4).has_value());
    CHECK(!queue.Acknowledge(2));
    CHECK(queue.report().broken() == "the standby acknowledged entry 2, want one from 0 to 1");
  }
  SECTION("of less than before") {
    REQUIRE(queue.Next(100).has_value());
    CHECK(queue.Acknowledge(2));
    CHECK(!queue.Acknowledge(1));
    CHECK(queue.report().broken() == "the standby acknowledged entry 1, want one from 2 to 2");
  }
  CHECK(queue.broken());
  CHECK(!queue.Next(100).has_value());
}

}  // namespace
}  // namespace tessera
