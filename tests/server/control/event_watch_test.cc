// What a job tells of itself, by its state alone.
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "common/base/log.h"
#include "tests/server/control/rejoin_fixture.h"

namespace tessera {
namespace {

// "kind who", in order.
std::vector<std::string> Told(const ControlFixture& f) {
  std::vector<std::string> told;
  for (const v1::JobEvent& event : f.coordinator->events().events()) {
    told.push_back(event.kind() + " " + event.who());
  }
  return told;
}

const v1::JobEvent& Last(const ControlFixture& f) {
  return f.coordinator->events().events().back();
}

size_t Count(const ControlFixture& f, const std::string& kind) {
  size_t count = 0;
  for (const v1::JobEvent& event : f.coordinator->events().events()) count += event.kind() == kind;
  return count;
}

TEST_CASE("a job that begins tells who came, and when it began", "[control][events]") {
  SetLogLevel(LogLevel::kError);
  ControlFixture f(ControlFixture::Facts(1, 2));
  f.Start(2);
  CHECK(Told(f) == std::vector<std::string>{"attached server 0", "joined worker 0",
                                            "joined worker 1", "began job", "admitted worker 0",
                                            "admitted worker 1"});
  CHECK(Last(f).number() == 6);
  CHECK(f.coordinator->Status(f.now).event_count() == 6);
}

TEST_CASE("a worker whose lease expires is lost, one that finishes has left", "[control][events]") {
  SetLogLevel(LogLevel::kError);
  ControlFixture f(ControlFixture::Facts(1, 3));
  f.Start(3);
  REQUIRE(f.Leave(1).ok());
  CHECK(Last(f).kind() == "left");
  REQUIRE(f.Leave(2, "out of memory").ok());
  CHECK(Last(f).kind() == "lost");
  CHECK(Last(f).words() == "lost: out of memory");
  CHECK(Last(f).who() == "worker 1");
  f.now += absl::Seconds(30);
  f.coordinator->ExtendLeases(f.now);
  f.Heartbeat();
  f.Tick(absl::Seconds(11));
  CHECK(Count(f, "lost") == 2);
}

TEST_CASE("a server that is cut off comes back, and both are told", "[control][events]") {
  SetLogLevel(LogLevel::kError);
  ControlFixture f(ControlFixture::Facts(2, 1));
  f.Start(1);
  f.now += absl::Seconds(2);
  f.coordinator->Detach(ShardId(1), f.servers[1].hello.life(), f.now);
  CHECK(Last(f).kind() == "disconnected");
  CHECK(Last(f).who() == "server 1");
  CHECK(Last(f).seconds() == Approx(2));
  REQUIRE(f.Attach(1).ok());
  CHECK(Last(f).kind() == "returned");
}

TEST_CASE("checkpoints and going back to one are told", "[control][events]") {
  SetLogLevel(LogLevel::kError);
  ControlFixture f(RejoinFacts());
  f.Start(2);
  MakeCheckpoint(&f);
  CHECK(Last(f).kind() == "checkpoint");
  CHECK(Last(f).words().find("of step 10") != std::string::npos);
  ReplaceServer(&f);
  CHECK(Count(f, "went_back") == 1);
  CHECK(Count(f, "returned") == 1);
}

TEST_CASE("pushes that are refused are told of at the first and when they have doubled",
          "[control][events]") {
  SetLogLevel(LogLevel::kError);
  ControlFixture f(ControlFixture::Facts(1, 1));
  f.Start(1);
  for (uint64_t refused = 1; refused <= 1000; ++refused) {
    v1::ShardMessage message;
    message.mutable_counters()->set_refused(refused);
    f.coordinator->OnShardMessage(ShardId(0), message, f.now);
  }
  CHECK(Count(f, "refused") == 10);
}

TEST_CASE("a drain and the end are told, and not each connection's end", "[control][events]") {
  SetLogLevel(LogLevel::kError);
  ControlFixture f(ControlFixture::Facts(2, 1));
  f.Start(1);
  f.coordinator->Drain("enough", f.now);
  CHECK(Last(f).kind() == "drain");
  CHECK(Last(f).words() == "is to end early: enough");
  f.coordinator->Stop("too slow", f.now);
  CHECK(Last(f).kind() == "ended");
  CHECK(Last(f).words() == "stopped: stopped: too slow");
  f.coordinator->Detach(ShardId(1), f.servers[1].hello.life(), f.now);
  CHECK(Last(f).kind() == "ended");
}

TEST_CASE("who goes on in the coordinator's place keeps the events and tells of its coming",
          "[control][events]") {
  SetLogLevel(LogLevel::kError);
  ControlFixture f(ControlFixture::Facts(2, 2));
  f.Start(2);
  const std::vector<std::string> before = Told(f);
  f.Restart();
  REQUIRE(f.Attach(0).ok());
  std::vector<std::string> after = Told(f);
  REQUIRE(after.size() == before.size() + 2);
  CHECK(after[before.size()] == "coordinator_moved coordinator");
  CHECK(after.back() == "returned server 0");
  after.resize(before.size());
  CHECK(after == before);
}

TEST_CASE("the report of a job has its events", "[control][events]") {
  SetLogLevel(LogLevel::kError);
  ControlFixture f(ControlFixture::Facts(1, 1));
  f.Start(1);
  f.coordinator->Stop("", f.now);
  f.Tick(absl::Minutes(1));
  const std::string report = f.coordinator->Status(f.now).report_json();
  CHECK(report.find("\"kind\": \"began\"") != std::string::npos);
  CHECK(report.find("\"kind\": \"ended\"") != std::string::npos);
}

}  // namespace
}  // namespace tessera
