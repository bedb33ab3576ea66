// Asking for a core where servers fail, are cut off from the coordinator, or move.
#include "worker/rpc/core_calls.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <memory>
#include <thread>

#include "absl/strings/match.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "common/base/steady_clock.h"
#include "common/keyset/entry_keys.h"
#include "common/rpc/key_set_message.h"
#include "tests/worker/rpc/scripted_server.h"

namespace tessera {
namespace {

constexpr absl::Duration kRetryTime = absl::Milliseconds(100);
const grpc::Status kNotNow(grpc::StatusCode::UNAVAILABLE, "not now");

std::unique_ptr<ParameterClientGrpc> ClientOf(const Scripted& scripted, bool has_standbys = false) {
  ParameterClientGrpc::Options options = scripted.Options();
  options.retry_time = kRetryTime;
  options.has_standbys = has_standbys;
  return Client(std::move(options));
}

// Core 0 has entry 3 alone.
grpc::Status AnswerKeys(const Scripted& scripted, grpc::ServerWriter<v1::Chunk>* writer) {
  const EntrySet entries(scripted.shape.size, {8});
  const EncodedKeys keys = EncodeKeys(entries);
  v1::Chunk chunk;
  chunk.mutable_header()->set_layout_hash(5);
  v1::SparseKeys& core = *chunk.mutable_header()->mutable_core();
  core = ToMessage(CoreName{0, SignatureOf(5, 0, entries)});
  core.set_keys_bytes(keys.bytes.size());
  core.set_key_form(static_cast<uint32_t>(keys.form));
  chunk.set_payload(keys.bytes);
  writer->Write(chunk);
  return grpc::Status();
}

void CheckCores(const absl::StatusOr<Cores>& cores) {
  INFO(cores.status());
  REQUIRE(cores.ok());
  REQUIRE(cores->size() == 1);
  CHECK(cores->front()->keys.places() == std::vector<int64_t>{3});
}

TEST_CASE("a server that answers no question for a core is asked for the retry time",
          "[client][core]") {
  Scripted scripted;
  scripted.server.on_pull = [](int, grpc::ServerWriter<v1::Chunk>*) { return kNotNow; };
  const auto client = ClientOf(scripted);
  const absl::Time begin = SteadyNow();
  client->AskCores(0);
  const absl::Status status = client->TakeCores().status();
  CHECK(status.code() == absl::StatusCode::kUnavailable);
  CHECK(absl::StartsWith(status.message(), "server 0: not now"));
  CHECK(SteadyNow() - begin >= kRetryTime);
}

TEST_CASE(
    "a core that is long in coming may be asked for again: time counts from the first failure",
    "[client][core]") {
  Scripted scripted;
  scripted.server.on_pull = [&](int call, grpc::ServerWriter<v1::Chunk>* writer) {
    if (call > 1) return AnswerKeys(scripted, writer);
    absl::SleepFor(2 * kRetryTime);
    return kNotNow;
  };
  const auto client = ClientOf(scripted);
  client->AskCores(0);
  CheckCores(client->TakeCores());
}

TEST_CASE("what came for a question that another one has replaced is counted", "[client][core]") {
  Scripted scripted;
  std::atomic<int> answered{0};
  scripted.server.on_pull = [&](int, grpc::ServerWriter<v1::Chunk>* writer) {
    const grpc::Status status = AnswerKeys(scripted, writer);
    ++answered;
    return status;
  };
  const auto client = ClientOf(scripted);
  client->AskCores(0);
  CheckCores(client->TakeCores());
  const uint64_t once = client->traffic().pull_payload_bytes;
  CHECK(once > 0);
  // An answer that is still on its way when the next question comes is cut off, and not counted.
  uint64_t counted = 0;
  const absl::Time end = SteadyNow() + absl::Seconds(20);
  while (counted != 2 * once && SteadyNow() < end) {
    const uint64_t before = client->traffic().pull_payload_bytes;
    const int asked = answered;
    client->AskCores(0);
    while (answered == asked && SteadyNow() < end) absl::SleepFor(absl::Milliseconds(5));
    absl::SleepFor(absl::Milliseconds(20));
    client->AskCores(0);
    CheckCores(client->TakeCores());
    counted = client->traffic().pull_payload_bytes - before;
    CHECK(counted >= once);
  }
  CHECK(counted == 2 * once);
}

TEST_CASE("while the coordinator is away nobody is asked for a core, and nobody given up",
          "[client][core]") {
  Scripted scripted;
  std::atomic<int> pulls{0};
  std::atomic<bool> is_back{false};
  scripted.server.on_pull = [&](int, grpc::ServerWriter<v1::Chunk>* writer) {
    ++pulls;
    return is_back ? AnswerKeys(scripted, writer) : kNotNow;
  };
  const auto client = ClientOf(scripted);
  const bool was_asked = GENERATE(true, false);  // before it was away
  if (was_asked) {
    client->AskCores(0);
    while (pulls == 0) absl::SleepFor(absl::Milliseconds(1));
  }
  client->SetAway(true);
  if (!was_asked) client->AskCores(0);
  int asked = 0;
  std::thread coordinator([&] {
    absl::SleepFor(3 * kRetryTime);
    asked = pulls;
    is_back = true;
    client->SetAway(false);
  });
  const absl::StatusOr<Cores> cores = client->TakeCores();
  coordinator.join();
  CHECK(asked == (was_asked ? 1 : 0));
  CheckCores(cores);
}

TEST_CASE(
    "whoever leads the shard by now is asked for the core, however long the other one was silent",
    "[client][core]") {
  absl::Notification done;  // outlives the servers, one of which waits for it
  Scripted before, now;
  const auto client = ClientOf(before, /*has_standbys=*/true);
  v1::ServerList list;
  list.set_generation(1);
  list.add_servers()->set_address(now.grpc->address());
  list.mutable_servers(0)->set_life(2);
  before.server.on_pull = [&](int, grpc::ServerWriter<v1::Chunk>*) {
    absl::SleepFor(2 * kRetryTime);
    client->SetServers(list);
    done.WaitForNotification();
    return grpc::Status();
  };
  now.server.on_pull = [&](int, grpc::ServerWriter<v1::Chunk>* writer) {
    return AnswerKeys(now, writer);
  };
  client->AskCores(0);
  const absl::StatusOr<Cores> cores = client->TakeCores();
  done.Notify();
  CheckCores(cores);
}

}  // namespace
}  // namespace tessera
