// Activations over real connections: what goes there and comes back, what is refused, and what becomes of calls whose
// other end goes away.
#include <catch2/catch.hpp>

#include <atomic>
#include <cmath>
#include <functional>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <grpcpp/client_context.h>

#include "absl/time/clock.h"
#include "common/rpc/transport.h"
#include "proto/activations.grpc.pb.h"
#include "tests/common/rpc/compressed_call.h"
#include "tests/worker/activations/lists.h"
#include "worker/rpc/layer_exchange.h"

namespace tessera {
namespace {

const char kDigest[] = "0123";
constexpr int64_t kRows = 600;
// More than a chunk.
constexpr int64_t kFeatures = 1000;
constexpr int64_t kOutputs = 3;

// Both ends of a job with so many workers, in one process.
class Ends {
 public:
  explicit Ends(int front, int linear, absl::Duration retry_time = absl::Seconds(20))
      : split_(SplitOf(front, linear)), list_(ListOf(split_, 1)) {
    for (int rank = 0; rank < front + linear; ++rank) {
      auto opened = LayerExchange::Open(
          {"127.0.0.1:0", kDigest, split_, kRows, kFeatures, kOutputs, /*has_classes=*/true});
      REQUIRE(opened.ok());
      list_.mutable_workers(rank)->set_address((*opened)->address());
      ends_.push_back(*std::move(opened));
    }
    for (int rank = 0; rank < front + linear; ++rank) {
      ends_[rank]->Begin({MemberAt(rank), Rank(rank), list_, retry_time, [this] { ++troubles_; }});
    }
  }

  LayerExchange& operator[](int rank) { return *ends_[rank]; }
  v1::WorkerList& list() { return list_; }
  void Lose(int rank) {
    ends_[rank].reset();
    lost_.insert(rank);
  }
  // All hear who is left.
  void Tell() {
    v1::WorkerList left;
    left.set_generation(list_.generation() + 1);
    for (const v1::WorkerEntry& entry : list_.workers()) {
      if (lost_.count(static_cast<int>(entry.rank())) == 0) *left.add_workers() = entry;
    }
    for (const std::unique_ptr<LayerExchange>& end : ends_) {
      if (end != nullptr) end->SetWorkers(left);
    }
  }
  // From now on `rank` is said to be there.
  void Lead(int rank, const std::string& address) {
    list_.mutable_workers(rank)->set_address(address);
    Tell();
  }
  int troubles() const { return troubles_; }
  const std::string& address(int rank) { return list_.workers(rank).address(); }

 private:
  const LayerSplit split_;
  v1::WorkerList list_;
  std::vector<std::unique_ptr<LayerExchange>> ends_;
  std::set<int> lost_;
  std::atomic<int> troubles_{0};
};

struct OwnBatch {
  explicit OwnBatch(float first, uint64_t step = 0) : values(kRows * kFeatures), classes(kRows) {
    for (size_t i = 0; i < values.size(); ++i) values[i] = first + static_cast<float>(i % 1024);
    for (size_t i = 0; i < classes.size(); ++i) classes[i] = static_cast<int32_t>(i % kOutputs);
    batch.step = step;
    batch.rows = kRows;
    batch.activations = values;
    batch.classes = classes;
  }
  std::vector<float> values;
  std::vector<int32_t> classes;
  ActivationBatch batch;
};

// A linear worker's step: the gradient is twice the activations. Returns the senders' ranks.
std::vector<uint64_t> ServeStep(ActivationReceiver* receiver, uint64_t step) {
  std::vector<uint64_t> senders;
  while (true) {
    const auto batch = receiver->Next(step, Generation());
    if (!batch.ok() || *batch == nullptr) return senders;
    senders.push_back((*batch)->sender.value());
    std::vector<float> gradient((*batch)->activations.begin(), (*batch)->activations.end());
    for (float& g : gradient) g *= 2;
    receiver->Answer(static_cast<double>((*batch)->classes[1]), gradient);
  }
}

TEST_CASE("activations of many chunks come as they are, and their gradient comes back", "[activations]") {
  Ends ends(2, 1);
  for (uint64_t step = 0; step < 3; ++step) {
    const OwnBatch first(1, step), second(5, step);
    std::vector<std::thread> fronts;
    for (const auto* own : {&first, &second}) {
      fronts.emplace_back([&ends, own, rank = own == &first ? 0 : 1] {
        const auto answer = ends[rank].sender()->Exchange(own->batch);
        REQUIRE(answer.ok());
        CHECK_FALSE(answer->too_late);
        CHECK(answer->loss == 1);
        REQUIRE(answer->gradient.size() == own->values.size());
        bool is_right = true;
        for (size_t i = 0; i < own->values.size(); ++i) is_right &= answer->gradient[i] == 2 * own->values[i];
        CHECK(is_right);
      });
    }
    CHECK(ServeStep(ends[2].receiver(), step) == std::vector<uint64_t>{0, 1});
    for (std::thread& front : fronts) front.join();
  }
  CHECK(ends[0].sender()->payload_bytes() == 3 * kRows * (2 * kFeatures + 1) * 4);
  CHECK(ends.troubles() == 0);
}

TEST_CASE("one that comes when the step is over hears so at once", "[activations]") {
  Ends ends(2, 2);
  const OwnBatch own(0), other(1);
  std::thread front([&] { CHECK(ends[0].sender()->Exchange(own.batch).ok()); });
  CHECK(ServeStep(ends[2].receiver(), 0) == std::vector<uint64_t>{0});
  front.join();
  ends.Lose(3);
  ends.Tell();
  const auto answer = ends[1].sender()->Exchange(other.batch);
  REQUIRE(answer.ok());
  CHECK(answer->too_late);
  CHECK(answer->gradient.empty());
}

TEST_CASE("a batch goes to another one when its linear worker is lost", "[activations]") {
  Ends ends(2, 2);
  const OwnBatch own(3), other(1);
  std::thread front([&] {
    const auto answer = ends[1].sender()->Exchange(own.batch);
    REQUIRE(answer.ok());
    CHECK_FALSE(answer->too_late);
    CHECK(answer->gradient[7] == 20);
  });
  std::thread second([&] { CHECK(ends[0].sender()->Exchange(other.batch).ok()); });
  // The call to rank 3 waits there, and ends with it.
  absl::SleepFor(absl::Milliseconds(200));
  ends.Lose(3);
  absl::SleepFor(absl::Milliseconds(200));
  CHECK(ends.troubles() > 0);
  ends.Tell();
  absl::SleepFor(absl::Milliseconds(1500));  // It has come by now.
  CHECK(ServeStep(ends[2].receiver(), 0) == std::vector<uint64_t>{0, 1});
  front.join();
  second.join();
}

TEST_CASE("a linear worker that cannot be reached is named, once the time is over", "[activations]") {
  Ends ends(1, 1, absl::Milliseconds(300));
  const OwnBatch own(0);
  ends.Lose(1);
  const auto answer = ends[0].sender()->Exchange(own.batch);
  CHECK(answer.status().code() == absl::StatusCode::kUnavailable);
  const std::string message(answer.status().message());
  CHECK(message.find("activations: worker 1 at " + ends.address(1)) == 0);
  CHECK(message.find("has not taken them for 300ms") != std::string::npos);
}

TEST_CASE("whoever waits is let go when this worker is to end", "[activations]") {
  Ends ends(1, 1);
  const OwnBatch own(0, /*step=*/9);  // Which nobody collects.
  std::thread front([&] {
    CHECK(ends[0].sender()->Exchange(own.batch).status().code() == absl::StatusCode::kCancelled);
  });
  std::thread linear([&] {
    CHECK(ends[1].receiver()->Next(7, Generation()).status().code() == absl::StatusCode::kCancelled);
  });
  absl::SleepFor(absl::Milliseconds(100));
  ends[0].Cancel();
  ends[1].Cancel();
  front.join();
  linear.join();
  CHECK(ends[0].sender()->Exchange(own.batch).status().code() == absl::StatusCode::kCancelled);
}

TEST_CASE("values that are not finite end their sender's call at once", "[activations]") {
  Ends ends(1, 1);
  OwnBatch own(0);
  own.values[7] = NAN;
  const auto answer = ends[0].sender()->Exchange(own.batch);
  CHECK(answer.status().code() == absl::StatusCode::kInvalidArgument);
  const std::string message(answer.status().message());
  CHECK(message.find("worker 1 at ") != std::string::npos);
  CHECK(message.find("activation 7 of row 0 is nan") != std::string::npos);
}

TEST_CASE("whoever is refused for good does not try for ever", "[activations]") {
  const auto begin = absl::Now();
  const auto other = GrpcServer::Start({"127.0.0.1:0", {}});  // Which knows of no activations.
  REQUIRE(other.ok());
  Ends ends(1, 1);
  ends.Lead(1, (*other)->address());
  const OwnBatch own(0);
  const auto answer = ends[0].sender()->Exchange(own.batch);
  CHECK(answer.status().code() == absl::StatusCode::kUnimplemented);
  CHECK(std::string(answer.status().message()).find((*other)->address()) != std::string::npos);
  CHECK(absl::Now() - begin < absl::Seconds(10));
}

TEST_CASE("nobody is given up while the coordinator is away", "[activations]") {
  Ends ends(1, 2, absl::Milliseconds(300));
  const OwnBatch own(3);
  ends[0].SetAway(true);
  ends.Lose(1);
  std::thread front([&] {
    const auto answer = ends[0].sender()->Exchange(own.batch);
    INFO(answer.status().message());
    REQUIRE(answer.ok());
    CHECK(answer->gradient[7] == 20);
  });
  absl::SleepFor(absl::Seconds(1));
  ends.Tell();
  absl::SleepFor(absl::Milliseconds(1500));  // It has come by now.
  CHECK(ServeStep(ends[2].receiver(), 0) == std::vector<uint64_t>{0});
  front.join();
}

TEST_CASE("one that leaves waits for none of a half that has nobody left", "[activations]") {
  Ends ends(1, 1);
  ends.Lose(1);
  ends.Tell();
  const OwnBatch own(0);
  std::atomic<bool> is_over{false};
  std::thread front([&] {
    const auto answer = ends[0].sender()->Exchange(own.batch);
    REQUIRE(answer.ok());
    CHECK(answer->too_late);
    is_over = true;
  });
  absl::SleepFor(absl::Milliseconds(200));
  CHECK_FALSE(is_over);
  ends[0].Leave();
  front.join();

  Ends others(1, 1);
  others.Lose(0);
  others.Tell();
  std::thread linear([&] {
    const auto batch = others[1].receiver()->Next(0, Generation());
    REQUIRE(batch.ok());
    CHECK(*batch == nullptr);
  });
  absl::SleepFor(absl::Milliseconds(100));
  others[1].Leave();
  linear.join();
}

TEST_CASE("both sides wait until they know who takes part", "[activations]") {
  Ends ends(1, 1);
  OwnBatch own(0);
  own.batch.plan = Generation(2);
  std::atomic<int> over{0};
  absl::StatusOr<ActivationAnswer> answer;
  std::vector<uint64_t> senders;
  std::thread front([&] {
    answer = ends[0].sender()->Exchange(own.batch);
    ++over;
  });
  std::thread linear([&] {
    const auto batch = ends[1].receiver()->Next(0, Generation(2));
    if (batch.ok() && *batch != nullptr) {
      senders.push_back((*batch)->sender.value());
      ends[1].receiver()->Answer(1, (*batch)->activations);
    }
    ++over;
  });
  // Both have asked for the list at once.
  while (ends.troubles() < 2) absl::SleepFor(absl::Milliseconds(1));
  CHECK(over == 0);
  ends.Tell();
  front.join();
  linear.join();
  CHECK(answer.ok());
  CHECK(senders == std::vector<uint64_t>{0});
  CHECK(ends[0].sender()->payload_bytes() == kRows * (2 * kFeatures + 1) * 4);
}

TEST_CASE("a step in which nobody has the linear layers is passed over where somebody comes", "[activations]") {
  Ends ends(1, 1);
  ends.list().mutable_workers(1)->set_first_step(1);
  ends.Tell();
  OwnBatch own(0);
  const absl::StatusOr<ActivationAnswer> answer = ends[0].sender()->Exchange(own.batch);
  REQUIRE(answer.ok());
  CHECK(answer->too_late);
  own.batch.step = 1;
  absl::StatusOr<ActivationAnswer> next;
  std::thread front([&] { next = ends[0].sender()->Exchange(own.batch); });
  CHECK(ServeStep(ends[1].receiver(), 1) == std::vector<uint64_t>{0});
  front.join();
  REQUIRE(next.ok());
  CHECK_FALSE(next->too_late);
}

TEST_CASE("a list that comes before this worker begins counts", "[activations]") {
  Ends ends(2, 1);
  v1::WorkerList later = ends.list();
  later.set_generation(2);
  later.mutable_workers()->DeleteSubrange(0, 1);
  ends[2].End();
  ends[2].SetWorkers(later);
  ends[2].Begin({MemberAt(2), Rank(2), ends.list(), absl::Seconds(20), [] {}});
  const OwnBatch own(0);
  std::thread front([&] { CHECK(ends[1].sender()->Exchange(own.batch).ok()); });
  CHECK(ServeStep(ends[2].receiver(), 0) == std::vector<uint64_t>{1});
  front.join();
}

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
      {"a second header", [](auto* chunks) {
         (*chunks)[0].set_payload("1234");
         chunks->push_back((*chunks)[0]);
       }},
      {"job digest is \"other\"", [](auto* chunks) { (*chunks)[0].mutable_header()->set_job_digest("other"); }},
      {"digest is \"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\", want \"0123\"",
       [](auto* chunks) { (*chunks)[0].mutable_header()->set_job_digest(std::string(5000, 'x')); }},
      {"no member with data that this worker knows of",
       [](auto* chunks) { (*chunks)[0].mutable_header()->set_member(9); }},
      {"no member with data that this worker knows of",
       [](auto* chunks) { (*chunks)[0].mutable_header()->set_member(2); }},
      {"rows are 601", [](auto* chunks) { (*chunks)[0].mutable_header()->set_rows(kRows + 1); }},
      {"payload is 7 bytes", [](auto* chunks) { (*chunks)[0].mutable_header()->set_payload_bytes(7); }},
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
  std::thread linear([&] { CHECK(ServeStep(ends[1].receiver(), 0) == std::vector<uint64_t>{0}); });
  v1::GradientChunk answer;
  const grpc::Status status = Call(ends.address(1), {good}, &answer);
  INFO(status.error_message());
  CHECK(status.ok());
  CHECK(answer.header().payload_bytes() == 2 * kFeatures * 4);
  CHECK(answer.payload().size() == 2 * kFeatures * 4);
  linear.join();
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

TEST_CASE("calls that are cut off at any moment leave the linear worker as it was", "[activations]") {
  Ends ends(4, 1);
  std::vector<std::thread> callers;
  for (uint64_t member = 1; member <= 4; ++member) {
    callers.emplace_back([&ends, member] {
      const auto stub = v1::Activations::NewStub(OpenChannel(ends.address(4)));
      std::mt19937 random(static_cast<unsigned>(member));
      for (int i = 0; i < 300; ++i) {
        grpc::ClientContext context;
        const auto call = stub->Exchange(&context);
        std::thread canceller([&context, wait = random() % 300] {
          absl::SleepFor(absl::Microseconds(wait));
          context.TryCancel();
        });
        call->Write(SmallBatch(member, 9));  // A step that is not collected yet.
        call->WritesDone();
        v1::GradientChunk answer;
        while (call->Read(&answer)) {
        }
        CHECK_FALSE(call->Finish().ok());
        canceller.join();
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  std::vector<std::thread> fronts;
  const OwnBatch own(1);
  for (int rank = 0; rank < 4; ++rank) {
    fronts.emplace_back([&ends, &own, rank] { CHECK(ends[rank].sender()->Exchange(own.batch).ok()); });
  }
  CHECK(ServeStep(ends[4].receiver(), 0).size() == 4);
  for (std::thread& front : fronts) front.join();
}

TEST_CASE("a stranger's calls have limits", "[activations]") {
  Ends ends(1, 1);
  const bool has_header = GENERATE(false, true);
  const size_t most = has_header ? kCallsPerSenderMax : 64 + 2 * 2;
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
    absl::SleepFor(absl::Milliseconds(5));  // In this order.
  }
  v1::GradientChunk answer;
  CHECK_FALSE(calls[0]->call->Read(&answer));
  CHECK(calls[0]->call->Finish().error_code() == grpc::StatusCode::CANCELLED);
  std::thread linear([&] { CHECK(ServeStep(ends[1].receiver(), 0) == std::vector<uint64_t>{0}); });
  const OwnBatch own(0);
  CHECK(ends[0].sender()->Exchange(own.batch).ok());
  linear.join();
  for (size_t i = 1; i < calls.size(); ++i) {
    calls[i]->context.TryCancel();
    CHECK_FALSE(calls[i]->call->Finish().ok());
  }
}

TEST_CASE("compressed activations are refused and never unpacked", "[activations][compression]") {
  Ends ends(1, 1);
  const std::string& address = ends.address(1);
  CheckThatNothingIsUnpacked(std::stoi(address.substr(address.rfind(':') + 1)), "/tessera.v1.Activations/Exchange");
  std::thread linear([&] { CHECK(ServeStep(ends[1].receiver(), 0) == std::vector<uint64_t>{0}); });
  const OwnBatch own(0);
  CHECK(ends[0].sender()->Exchange(own.batch).ok());
  linear.join();
}

}  // namespace
}  // namespace tessera
