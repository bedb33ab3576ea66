// A linear worker's door, with callers that no worker of ours is: what is refused, cut off, or too much.
#include "worker/rpc/activation_service.h"

#include <catch2/catch.hpp>

#include <functional>
#include <future>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <grpcpp/client_context.h>

#include "common/rpc/call_limit.h"
#include "common/rpc/transport.h"
#include "proto/activations.grpc.pb.h"
#include "tests/common/rpc/compressed_call.h"
#include "tests/worker/rpc/activation_ends.h"

namespace tessera {
namespace {

// A call is cut off while another thread has had up to so many turns.
constexpr unsigned kTurnsMax = 300;

// As a client in any language makes the call.
grpc::Status Call(const std::string& address, const std::vector<v1::ActivationChunk>& chunks,
                  v1::GradientChunk* answer = nullptr) {
  const auto stub = v1::Activations::NewStub(OpenChannel(address));
  grpc::ClientContext context;
  const auto call = stub->Exchange(&context);
  for (const v1::ActivationChunk& chunk : chunks) call->Write(chunk);
  call->WritesDone();
  v1::GradientChunk read;
  while (call->Read(&read)) {
    if (answer != nullptr) *answer = read;
  }
  return call->Finish();
}

TEST_CASE("what is no batch is refused with a word, and the next one is served", "[activations]") {
  Ends ends(1, 1);
  v1::ActivationChunk good;
  v1::ActivationHeader& header = *good.mutable_header();
  header.set_member(1);
  header.set_job_digest(kDigest);
  header.set_rows(2);
  header.set_has_classes(true);
  header.set_payload_bytes(2 * (kFeatures + 1) * 4);
  good.set_payload(std::string(header.payload_bytes(), '\0'));
  struct Bad {
    const char* words;
    std::function<void(std::vector<v1::ActivationChunk>*)> change;
  };
  const Bad bad[] = {
      {"no header", [](auto* chunks) { (*chunks)[0].clear_header(); }},
      {"a second header",
       [](auto* chunks) {
         (*chunks)[0].set_payload("1234");
         chunks->push_back((*chunks)[0]);
       }},
      {"job digest is \"other\"",
       [](auto* chunks) { (*chunks)[0].mutable_header()->set_job_digest("other"); }},
      {"digest is \"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\", want "
       "\"0123\"",
       [](auto* chunks) { (*chunks)[0].mutable_header()->set_job_digest(std::string(5000, 'x')); }},
      {"no member with data that this worker knows of",
       [](auto* chunks) { (*chunks)[0].mutable_header()->set_member(9); }},
      {"no member with data that this worker knows of",
       [](auto* chunks) { (*chunks)[0].mutable_header()->set_member(2); }},
      {"rows are 601", [](auto* chunks) { (*chunks)[0].mutable_header()->set_rows(kRows + 1); }},
      {"payload is 7 bytes",
       [](auto* chunks) { (*chunks)[0].mutable_header()->set_payload_bytes(7); }},
      {"want the declared", [](auto* chunks) { (*chunks)[0].mutable_payload()->append("1234"); }},
      {"ended after 4 of", [](auto* chunks) { (*chunks)[0].set_payload("1234"); }},
      {"class of row 0 is 3", [](auto* chunks) { (*(*chunks)[0].mutable_payload())[0] = 3; }},
      {"ended after 0 of 0", [](auto* chunks) { chunks->clear(); }},
  };
  for (const Bad& each : bad) {
    INFO(each.words);
    std::vector<v1::ActivationChunk> chunks = {good};
    each.change(&chunks);
    const grpc::Status status = Call(ends.address(1), chunks);
    INFO(status.error_message());
    CHECK_FALSE(status.ok());
    CHECK(status.error_message().find(each.words) != std::string::npos);
  }
  // A worker that has data takes none.
  CHECK(Call(ends.address(0), {good}).error_code() == grpc::StatusCode::UNAVAILABLE);
  auto linear = ends.Serve(1, 0);
  v1::GradientChunk answer;
  const grpc::Status status = Call(ends.address(1), {good}, &answer);
  INFO(status.error_message());
  CHECK(status.ok());
  CHECK(answer.header().payload_bytes() == 2 * kFeatures * 4);
  CHECK(answer.payload().size() == 2 * kFeatures * 4);
  CHECK(linear.get() == std::vector<uint64_t>{0});
}

v1::ActivationChunk SmallBatch(uint64_t member, uint64_t step) {
  v1::ActivationChunk chunk;
  v1::ActivationHeader& header = *chunk.mutable_header();
  header.set_member(member);
  header.set_job_digest(kDigest);
  header.set_step(step);
  header.set_rows(1);
  header.set_has_classes(true);
  header.set_payload_bytes((kFeatures + 1) * 4);
  chunk.set_payload(std::string(header.payload_bytes(), '\0'));
  return chunk;
}

TEST_CASE("calls that are cut off at any moment leave the linear worker as it was",
          "[activations]") {
  Ends ends(4, 1);
  std::vector<std::future<int>> callers;
  for (uint64_t member = 1; member <= 4; ++member) {
    callers.push_back(Async([&ends, member] {
      int answered = 0;
      const auto stub = v1::Activations::NewStub(OpenChannel(ends.address(4)));
      std::mt19937 random(static_cast<unsigned>(member));
      for (int i = 0; i < 300; ++i) {
        grpc::ClientContext context;
        const auto call = stub->Exchange(&context);
        std::thread canceller([&context, turns = random() % kTurnsMax] {
          for (unsigned turn = 0; turn < turns; ++turn) std::this_thread::yield();
          context.TryCancel();
        });
        call->Write(SmallBatch(member, 9));  // A step that is not collected yet.
        call->WritesDone();
        v1::GradientChunk answer;
        while (call->Read(&answer)) {
        }
        if (call->Finish().ok()) ++answered;
        canceller.join();
      }
      return answered;
    }));
  }
  for (std::future<int>& caller : callers) CHECK(caller.get() == 0);
  std::vector<std::future<absl::StatusOr<ActivationAnswer>>> fronts;
  const OwnBatch own(1);
  for (int rank = 0; rank < 4; ++rank) fronts.push_back(ends.Exchange(rank, own));
  CHECK(ServeStep(ends[4].receiver(), 0).size() == 4);
  for (auto& front : fronts) CHECK(front.get().ok());
}

TEST_CASE("a stranger's calls have limits", "[activations]") {
  Ends ends(1, 1);
  const bool has_header = GENERATE(false, true);
  const size_t most = has_header ? kCallsPerSenderMax : 64 + 2 * 2;
  const CallLimit& limit = has_header ? ends[1].door().senders() : ends[1].door().half_open();
  const uint64_t owner = has_header ? MemberAt(0).value() : NumberOfHost("ipv4:127.0.0.1:1");
  struct Open {
    grpc::ClientContext context;
    std::unique_ptr<grpc::ClientReaderWriter<v1::ActivationChunk, v1::GradientChunk>> call;
  };
  const auto stub = v1::Activations::NewStub(OpenChannel(ends.address(1)));
  const auto second = v1::Activations::NewStub(OpenChannel(ends.address(1)));
  const auto third = v1::Activations::NewStub(OpenChannel(ends.address(1)));
  v1::ActivationChunk chunk = SmallBatch(1, 0);
  chunk.mutable_payload()->resize(1024);  // The rest never comes.
  std::vector<std::unique_ptr<Open>> calls;
  for (size_t i = 0; i <= most; ++i) {
    calls.push_back(std::make_unique<Open>());
    // A connection has room for 32.
    calls[i]->call = (i < 30 ? stub : i < 60 ? second : third)->Exchange(&calls[i]->context);
    if (has_header) calls[i]->call->Write(chunk);
    // In this order.
    while (limit.open(owner) + limit.given_way() <= i) std::this_thread::yield();
  }
  CHECK(limit.given_way() == 1);
  v1::GradientChunk answer;
  CHECK_FALSE(calls[0]->call->Read(&answer));
  CHECK(calls[0]->call->Finish().error_code() == grpc::StatusCode::CANCELLED);
  auto linear = ends.Serve(1, 0);
  const OwnBatch own(0);
  CHECK(ends[0].sender()->Exchange(own.batch).ok());
  CHECK(linear.get() == std::vector<uint64_t>{0});
  for (size_t i = 1; i < calls.size(); ++i) {
    calls[i]->context.TryCancel();
    CHECK_FALSE(calls[i]->call->Finish().ok());
  }
}

TEST_CASE("compressed activations are refused and never unpacked", "[activations][compression]") {
  Ends ends(1, 1);
  const std::string& address = ends.address(1);
  CheckThatNothingIsUnpacked(std::stoi(address.substr(address.rfind(':') + 1)),
                             "/tessera.v1.Activations/Exchange");
  auto linear = ends.Serve(1, 0);
  const OwnBatch own(0);
  CHECK(ends[0].sender()->Exchange(own.batch).ok());
  CHECK(linear.get() == std::vector<uint64_t>{0});
}

}  // namespace
}  // namespace tessera
