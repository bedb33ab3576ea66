// Exchanges whose payloads go by shared memory, against the same ones by TCP.
#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <catch2/catch.hpp>

#include "absl/strings/match.h"
#include "absl/synchronization/notification.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/philox.h"
#include "common/base/steady_clock.h"
#include "common/consistency/barrier.h"
#include "common/consistency/none.h"
#include "common/keyset/key_set.h"
#include "common/rpc/shared_memory/memory_hello.h"
#include "common/rpc/shared_memory/memory_link.h"
#include "common/rpc/shared_memory/shared_arena.h"
#include "tests/common/codec/all_codecs.h"
#include "tests/server/rpc/linked_member.h"
#include "tests/server/rpc/plain_client.h"
#include "tests/server/rpc/running_servers.h"
#include "tests/worker/rpc/client_options.h"
#include "tests/worker/rpc/scripted_server.h"
#include "worker/rpc/parameter_client_grpc.h"

namespace tessera {
namespace {

template <typename Condition>
bool Eventually(Condition condition) {
  const absl::Time end = SteadyNow() + absl::Seconds(20);
  while (!condition()) {
    if (SteadyNow() > end) return false;
    absl::SleepFor(absl::Milliseconds(1));
  }
  return true;
}

// Of many magnitudes.
Replica Update(const ModelShape& shape, uint64_t number) {
  Replica update(shape);
  uint64_t b = 0;
  for (auto& array : update.data) {
    for (float& x : array) {
      const PhiloxBlock random = Philox(number, Stream::kInitialValues, 99, b++);
      x = (UnitFloat(random[0]) - 0.5f) * std::ldexp(1.0f, -static_cast<int>(random[1] % 12));
    }
  }
  return update;
}

void ShareMemory(RunningServers& servers, int count) {
  for (int s = 0; s < count; ++s) REQUIRE(servers[s].service->ShareMemory().ok());
}

// Returns once all payloads of this client go by memory.
void AwaitMemory(ParameterClientGrpc& client, int count) {
  for (int s = 0; s < count; ++s) {
    REQUIRE(Eventually([&] { return client.shares_memory(static_cast<size_t>(s)); }));
  }
}

std::unique_ptr<ConsistencyPolicy> None() { return MakeNone(1); }

struct Outcome {
  std::vector<Replica> values;  // after each exchange
  Traffic traffic;
  int64_t shared_bytes = 0;
};

// Two workers under a barrier, so that the bits do not depend on who comes first.
Outcome Run(const ModelShape& shape, int count, const CodecChoice& codecs, bool by_memory) {
  RunningServers servers(shape, count, MakeBarrier, 2, std::nullopt, false, codecs);
  if (by_memory) ShareMemory(servers, count);
  std::vector<Outcome> outcomes(2);
  const auto work = [&](uint64_t member) {
    ParameterClientGrpc::Options options = OptionsFor(servers, member);
    options.coding = {codecs, shape, 7, Rank(member - 1)};
    options.shares_memory = by_memory;
    const auto client = Client(std::move(options));
    if (by_memory) AwaitMemory(*client, count);
    Outcome& outcome = outcomes[member - 1];
    for (uint64_t exchange = 1; exchange <= 4; ++exchange) {
      outcome.values.emplace_back(shape, -9.0f);
      REQUIRE(client
                  ->PushPull({Exchange(exchange), 1}, client->dense_keys(),
                             Update(shape, 10 * member + exchange), client->dense_keys(),
                             outcome.values.back())
                  .status()
                  .message() == "");
      CHECK(client->shares_memory(0) == by_memory);
    }
    // The values outside of exchanges.
    outcome.values.emplace_back(shape, -9.0f);
    REQUIRE(client->Read(Exchange(4), IdleNotice(), outcome.values.back()).ok());
    outcome.traffic = client->traffic();
    outcome.shared_bytes = client->shared_bytes();
  };
  std::thread other(work, 2);
  work(1);
  other.join();
  for (size_t i = 0; i < outcomes[0].values.size(); ++i) {
    CHECK(SameBits(outcomes[0].values[i], outcomes[1].values[i]));
  }
  return outcomes[0];
}

TEST_CASE("exchanges by memory have the bits of those by TCP, in every codec", "[rpc][memory]") {
  REQUIRE(SharedArena::Enable().ok());
  const Codec f32;
  std::vector<CodecChoice> choices = {{f32, f32},
                                      {Bf16Codec(), F16Codec()},
                                      {Int8Codec(), Int8Codec()},
                                      {QsgdCodec(3, 100, true), QsgdCodec(5, 64)}};
  for (const Codec& codec : SelectiveCodecs()) choices.push_back({codec, f32});
  for (size_t c = 0; c < choices.size(); ++c) {
    const CodecChoice& codecs = choices[c];
    // All in messages; one buffer and more; many buffers, blocks and pieces, which those of the same form are spared.
    std::vector<ModelShape> shapes = {TestShape(37, 101), TestShape(370, 701)};
    if (c < 2) shapes.push_back(TestShape(2100, 1003));
    for (const ModelShape& shape : shapes) {
      for (const int count : {1, 2}) {
        INFO(Describe(codecs) << ", " << count << " servers, " << shape.size << " entries");
        const Outcome tcp = Run(shape, count, codecs, false);
        const Outcome memory = Run(shape, count, codecs, true);
        for (size_t i = 0; i < tcp.values.size(); ++i) {
          CHECK(SameBits(tcp.values[i], memory.values[i]));
        }
        CHECK(memory.traffic.push_payload_bytes == tcp.traffic.push_payload_bytes);
        CHECK(memory.traffic.pull_payload_bytes == tcp.traffic.pull_payload_bytes);
        CHECK(memory.traffic.other_payload_bytes == tcp.traffic.other_payload_bytes);
        CHECK(tcp.shared_bytes == 0);
        CHECK(tcp.traffic.shared_memory_bytes == 0);
        // All of it, also what is small and goes in messages.
        CHECK(memory.traffic.shared_memory_bytes == memory.traffic.push_payload_bytes +
                                                        memory.traffic.pull_payload_bytes +
                                                        memory.traffic.other_payload_bytes);
        if (codecs.push != f32 || codecs.pull != f32) continue;
        // Nothing that is large goes in a message.
        const int64_t all = memory.traffic.push_payload_bytes + memory.traffic.pull_payload_bytes +
                            memory.traffic.other_payload_bytes;
        CHECK((shape.size < 10000 ? memory.shared_bytes == 0 : memory.shared_bytes > all * 9 / 10));
      }
    }
  }
}

TEST_CASE("subnets go by memory with the same bits", "[rpc][memory][subnet]") {
  REQUIRE(SharedArena::Enable().ok());
  v1::Model model;
  model.add_input(600);
  for (const int units : {900, 400, 40}) {
    v1::Linear* const linear = model.add_layers()->mutable_linear();
    linear->set_units(units);
    linear->set_bias(true);
  }
  const ModelShape full = *ShapeOf(model);
  const NeuronGroups groups = GroupsOf(full);
  std::vector<Replica> values;
  for (const bool by_memory : {false, true}) {
    RunningServers servers(full, 2, MakeBarrier, 1, groups);
    if (by_memory) ShareMemory(servers, 2);
    ParameterClientGrpc::Options options = OptionsFor(servers, 1);
    options.coding.shape = full;
    options.kind = v1::VALUE;
    options.shares_memory = by_memory;
    const auto client = Client(std::move(options));
    if (by_memory) AwaitMemory(*client, 2);
    KeySet keys = client->dense_keys();
    Replica read(full, -9.0f);
    REQUIRE(client->Read(Exchange(0), IdleNotice(), read).ok());
    values.push_back(std::move(read));
  }
  CHECK(SameBits(values[0], values[1]));
}

TEST_CASE("where a server shares no memory exchanges go by TCP", "[rpc][memory]") {
  REQUIRE(SharedArena::Enable().ok());
  const ModelShape shape = TestShape(370, 701);
  RunningServers servers(shape, 1, None, 1);
  ParameterClientGrpc::Options options = OptionsFor(servers, 1);
  options.shares_memory = true;
  const auto client = Client(std::move(options));
  for (uint64_t exchange = 1; exchange <= 3; ++exchange) {
    Replica values(shape);
    CHECK(client
              ->PushPull({Exchange(exchange), 1}, client->dense_keys(), Update(shape, exchange),
                         client->dense_keys(), values)
              .ok());
    absl::SleepFor(absl::Milliseconds(20));
    CHECK_FALSE(client->shares_memory(0));
  }
}

// What shows that short calls go by the link alone.
TEST_CASE("short exchanges go on without gRPC, and over it where the link ends", "[rpc][memory]") {
  REQUIRE(SharedArena::Enable().ok());
  // Models whose calls are one packet: with the payload in it, and with the payload in a buffer of the link.
  for (const ModelShape& shape : {TestShape(37, 11), TestShape(120, 201)}) {
    RunningServers servers(shape, 1, None, 1);
    ShareMemory(servers, 1);
    ParameterClientGrpc::Options options = OptionsFor(servers, 1);
    options.shares_memory = true;
    options.retry_time = absl::Seconds(3);
    const auto client = Client(std::move(options));
    AwaitMemory(*client, 1);
    uint64_t number = 0;
    Replica sum(shape);
    CHECK(client->Pull(Exchange(0), client->dense_keys(), sum).ok());
    const auto exchange = [&] {
      const Replica update = Update(shape, ++number);
      for (size_t a = 0; a < sum.data.size(); ++a) {
        for (size_t i = 0; i < sum.data[a].size(); ++i) sum.data[a][i] += update.data[a][i];
      }
      Replica values(shape);
      TESSERA_RETURN_IF_ERROR(client
                                  ->PushPull({Exchange(number), 1}, client->dense_keys(), update,
                                             client->dense_keys(), values)
                                  .status());
      CHECK(SameBits(values, sum));
      return absl::OkStatus();
    };
    CHECK(exchange().message() == "");
    // A link that has ended, as of a server that was started again, is left for gRPC.
    servers[0].service->EndLocalCalls();
    CHECK(exchange().message() == "");
    CHECK_FALSE(client->shares_memory(0));
  }
  const ModelShape shape = TestShape(37, 11);
  RunningServers servers(shape, 1, None, 1);
  ShareMemory(servers, 1);
  ParameterClientGrpc::Options options = OptionsFor(servers, 1);
  options.shares_memory = true;
  options.retry_time = absl::Milliseconds(300);
  const auto client = Client(std::move(options));
  AwaitMemory(*client, 1);
  servers[0].grpc->Shutdown(absl::ZeroDuration());
  Replica values(shape);
  for (uint64_t number = 1; number <= 5; ++number) {
    CHECK(client
              ->PushPull({Exchange(number), 1}, client->dense_keys(), Update(shape, number),
                         client->dense_keys(), values)
              .status()
              .message() == "");
  }
  // With the link the last way has gone.
  servers[0].service->EndLocalCalls();
  const absl::Status status = client->Pull(Exchange(5), client->dense_keys(), values).status();
  CHECK(absl::IsUnavailable(status));
}

TEST_CASE("a pull by packets that waits ends when the client is cancelled", "[rpc][memory]") {
  REQUIRE(SharedArena::Enable().ok());
  const ModelShape shape = TestShape(37, 11);
  RunningServers servers(shape, 1, MakeBarrier, 2);
  ShareMemory(servers, 1);
  ParameterClientGrpc::Options options = OptionsFor(servers, 1);
  options.shares_memory = true;
  const auto client = Client(std::move(options));
  AwaitMemory(*client, 1);
  absl::Status status;
  std::thread other([&] {
    Replica values(shape);
    status = client
                 ->PushPull({Exchange(1), 1}, client->dense_keys(), Update(shape, 1),
                            client->dense_keys(), values)
                 .status();
  });
  const auto parked = [&] {
    uint64_t count = 0;
    absl::Notification told;
    servers[0].thread->Inspect(false, [&](const ShardThread::View& view) {
      count = view.parked_reads;
      told.Notify();
    });
    told.WaitForNotification();
    return count;
  };
  // The other member has not pushed.
  CHECK(Eventually([&] { return parked() == 1; }));
  client->Cancel();
  other.join();
  CHECK(absl::IsCancelled(status));
  CHECK(Eventually([&] { return parked() == 0; }));
}

TEST_CASE("a link ends with its worker, and the next one has its own", "[rpc][memory]") {
  REQUIRE(SharedArena::Enable().ok());
  const int64_t before = SharedArena::OfProcess()->bytes_in_use();
  {
    const ModelShape shape = TestShape(370, 701);
    RunningServers servers(shape, 1, None, 2);
    ShareMemory(servers, 1);
    for (const uint64_t member : {1, 2}) {
      ParameterClientGrpc::Options options = OptionsFor(servers, member);
      options.shares_memory = true;
      const auto client = Client(std::move(options));
      AwaitMemory(*client, 1);
      CHECK(servers[0].service->memory_members() == std::vector<uint64_t>{member});
      Replica values(shape);
      CHECK(client->Pull(Exchange(0), client->dense_keys(), values).ok());
    }
    CHECK(Eventually([&] { return servers[0].service->memory_members().empty(); }));
  }
  CHECK(Eventually([&] {
    SharedArena* const arena = SharedArena::OfProcess();
    arena->Return(arena->Take(1), 1);
    return arena->bytes_in_use() == before;
  }));
}

TEST_CASE("what a push says of shared memory is checked, and counts once", "[rpc][memory]") {
  REQUIRE(SharedArena::Enable().ok());
  const ModelShape shape = TestShape(100, 1003);
  RunningServers servers(shape, 1, None, 2);
  ShareMemory(servers, 1);
  LinkedMember member(servers, 1);
  const std::string before = member.client.Now().bytes;
  const auto refused = [&](grpc::StatusCode code, const std::string& why,
                           const std::vector<v1::PushChunk>& chunks) {
    const grpc::Status status = member.client.Push(chunks);
    CHECK(status.error_code() == code);
    INFO(status.error_message());
    CHECK(absl::StrContains(status.error_message(), why));
    CHECK(member.client.Now().bytes == before);
  };
  auto chunks = member.Shared(1, 1, 2.0f);
  REQUIRE(chunks.size() == 1);
  auto wrong = chunks;
  wrong[0].mutable_header()->mutable_caller()->clear_link();
  refused(grpc::StatusCode::ABORTED, "link does not stand", wrong);
  wrong = chunks;
  wrong[0].mutable_header()->mutable_caller()->set_link(member.link->number() + 2);
  refused(grpc::StatusCode::ABORTED, "link does not stand", wrong);
  // Another member's link is nobody else's.
  wrong = chunks;
  wrong[0].mutable_header()->mutable_caller()->set_member(2);
  refused(grpc::StatusCode::ABORTED, "link does not stand", wrong);
  wrong = chunks;
  wrong[0].mutable_shared()->set_slot(77);
  refused(grpc::StatusCode::INVALID_ARGUMENT, "slot is 77", wrong);
  wrong = chunks;
  wrong[0].mutable_shared()->clear_buffer_bytes();
  wrong[0].mutable_shared()->set_slot(5);
  wrong[0].mutable_shared()->add_offsets(~uint64_t{0} - 3);
  wrong[0].mutable_shared()->add_sizes(400000);
  refused(grpc::StatusCode::INVALID_ARGUMENT, "within the peer's", wrong);
  wrong = chunks;
  wrong[0].mutable_shared()->set_buffer_bytes(wrong[0].shared().buffer_bytes() + 4);
  refused(grpc::StatusCode::INVALID_ARGUMENT, "payload is at least", wrong);
  // That attempt has read the loan. What comes after it finds that it does not stand any more, or reads it again: here
  // nothing else was lent, and the bytes are the same.
  wrong = chunks;
  wrong[0].set_payload("abcd");
  refused(grpc::StatusCode::INVALID_ARGUMENT, "want one of the two", wrong);
  wrong = chunks;
  wrong[0].mutable_shared()->set_serial(chunks[0].shared().serial() + 9);
  refused(grpc::StatusCode::ABORTED, "not lent any more", wrong);

  chunks = member.Shared(1, 1, 2.0f);
  v1::PushReply reply;
  CHECK(member.client.Push(chunks, &reply).ok());
  CHECK_FALSE(reply.duplicate());
  const std::string after = member.client.Now().bytes;
  CHECK(At(after, 0) == At(before, 0) + 2.0f);
  // Sent once more, as after a reply that was lost, with other bytes in the buffer by now.
  chunks = member.Shared(1, 1, 5.0f);
  CHECK(member.client.Push(chunks, &reply).ok());
  CHECK(reply.duplicate());
  CHECK(member.client.Now().bytes == after);
}

TEST_CASE("values that are lent stay as they are, or say that they do not", "[rpc][memory]") {
  REQUIRE(SharedArena::Enable().ok());
  const ModelShape shape = TestShape(600, 1003);
  RunningServers servers(shape, 1, None, 2);
  ShareMemory(servers, 1);
  LinkedMember reader(servers, 1);
  PlainClient writer(servers);
  // Asks for all values, and has them lent.
  const auto pull = [&] {
    v1::PullRequest request = PlainClient::Request(1, 0, /*outside=*/true);
    request.mutable_caller()->set_link(reader.link->number());
    PlainContext context;
    const auto answer = reader.client.stub().Pull(&context, request);
    std::vector<v1::SharedBytes> lent;
    v1::Chunk chunk;
    while (answer->Read(&chunk)) {
      CHECK(chunk.payload().empty());
      lent.push_back(chunk.shared());
    }
    REQUIRE(answer->Finish().ok());
    REQUIRE(lent.size() == 1);
    return lent[0];
  };
  const auto read = [&](const v1::SharedBytes& lent, absl::Status* status) {
    std::string bytes(static_cast<size_t>(*reader.link->SizeOf(lent)), '\0');
    SharedReader from(reader.link.get(), lent);
    *status = from.Read(&bytes[0], static_cast<int64_t>(bytes.size()));
    if (status->ok()) *status = from.Finish();
    return bytes;
  };
  const std::string first = writer.Now().bytes;
  const v1::SharedBytes of_first = pull();
  REQUIRE(writer.Push(writer.Chunks(2, 1, 1.0f)).ok());
  // The commit has written other blocks than those that are lent.
  absl::Status status;
  CHECK(Eventually([&] { return At(writer.Now().bytes, 0) == At(first, 0) + 1.0f; }));
  const v1::SharedBytes of_second = pull();
  CHECK(read(of_first, &status) == first);
  CHECK(status.ok());
  CHECK(At(read(of_second, &status), 0) == At(first, 0) + 1.0f);

  // Versions that nobody reads are not kept without end: the oldest is taken back.
  std::vector<v1::SharedBytes> lent;
  for (uint64_t exchange = 2; exchange <= 6; ++exchange) {
    lent.push_back(pull());
    REQUIRE(writer.Push(writer.Chunks(2, exchange, 1.0f)).ok());
    CHECK(Eventually(
        [&] { return At(writer.Now().bytes, 0) == At(first, 0) + static_cast<float>(exchange); }));
  }
  CHECK(Eventually([&] {
    read(lent[0], &status);
    return absl::IsAborted(status);
  }));
  const std::string newest = read(lent.back(), &status);
  INFO(status);
  CHECK(status.ok());
  CHECK(At(newest, 0) == At(first, 0) + 5.0f);
}

}  // namespace
}  // namespace tessera
