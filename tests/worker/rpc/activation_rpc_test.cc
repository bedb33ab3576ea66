// Activations over real connections: what goes there and comes back, what is refused, and what becomes of calls whose
// other end goes away.
#include <catch2/catch.hpp>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <functional>
#include <future>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <grpcpp/client_context.h>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/base/steady_clock.h"
#include "common/rpc/call_limit.h"
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
// A call is cut off while another thread has had up to so many turns.
constexpr unsigned kTurnsMax = 300;

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

// The train loops' threads make calls and keep what they get: Catch's assertions are for the test's thread alone.
template <typename Call>
auto Async(const Call& call) {
  return std::async(std::launch::async, call);
}

// Twice what was sent, as ServeStep answers.
bool IsTwice(absl::Span<const float> gradient, const std::vector<float>& values) {
  return std::equal(gradient.begin(), gradient.end(), values.begin(), values.end(),
                    [](float g, float v) { return g == 2 * v; });
}

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
      ends_[rank]->Begin({MemberAt(rank), Rank(rank), list_, retry_time, [this] {
                            absl::MutexLock lock(&mutex_);
                            ++troubles_;
                          }});
    }
  }

  LayerExchange& operator[](int rank) { return *ends_[rank]; }
  // A front worker's step, on a thread of its own.
  std::future<absl::StatusOr<ActivationAnswer>> Exchange(int rank, const OwnBatch& own) {
    return Async([sender = ends_[rank]->sender(), &own] { return sender->Exchange(own.batch); });
  }
  // A linear worker's: the senders' ranks.
  std::future<std::vector<uint64_t>> Serve(int rank, uint64_t step) {
    return Async([receiver = ends_[rank]->receiver(), step] { return ServeStep(receiver, step); });
  }
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
  // How often somebody has asked for a newer list: an attempt has failed, or a wait is no short one.
  int troubles() const {
    absl::MutexLock lock(&mutex_);
    return troubles_;
  }
  void AwaitTroubles(int count) const {
    const auto are_there = [&]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return troubles_ >= count; };
    absl::MutexLock lock(&mutex_);
    mutex_.Await(absl::Condition(&are_there));
  }
  // That so many batches have come to this linear worker.
  void AwaitBatches(int rank, size_t count) {
    while (ends_[rank]->receiver()->waiting() < count) std::this_thread::yield();
  }
  const std::string& address(int rank) { return list_.workers(rank).address(); }

 private:
  const LayerSplit split_;
  v1::WorkerList list_;
  mutable absl::Mutex mutex_;
  int troubles_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<std::unique_ptr<LayerExchange>> ends_;
  std::set<int> lost_;
};

TEST_CASE("activations of many chunks come as they are, and their gradient comes back", "[activations]") {
  Ends ends(2, 1);
  for (uint64_t step = 0; step < 3; ++step) {
    const OwnBatch own[] = {OwnBatch(1, step), OwnBatch(5, step)};
    std::future<absl::StatusOr<ActivationAnswer>> fronts[2];
    for (int rank : {0, 1}) fronts[rank] = ends.Exchange(rank, own[rank]);
    CHECK(ServeStep(ends[2].receiver(), step) == std::vector<uint64_t>{0, 1});
    for (int rank : {0, 1}) {
      const absl::StatusOr<ActivationAnswer> answer = fronts[rank].get();
      REQUIRE(answer.ok());
      CHECK_FALSE(answer->too_late);
      CHECK(answer->loss == 1);
      CHECK(IsTwice(answer->gradient, own[rank].values));
    }
  }
  CHECK(ends[0].sender()->payload_bytes() == 3 * kRows * (2 * kFeatures + 1) * 4);
  CHECK(ends.troubles() == 0);
}

TEST_CASE("one that comes when the step is over hears so at once", "[activations]") {
  Ends ends(2, 2);
  const OwnBatch own(0), other(1);
  auto front = ends.Exchange(0, own);
  CHECK(ServeStep(ends[2].receiver(), 0) == std::vector<uint64_t>{0});
  CHECK(front.get().ok());
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
  auto front = ends.Exchange(1, own);
  auto second = ends.Exchange(0, other);
  // The call to rank 3 waits there, and ends with it.
  ends.AwaitBatches(3, 1);
  CHECK(ends.troubles() == 0);
  ends.Lose(3);
  ends.AwaitTroubles(1);
  ends.Tell();
  ends.AwaitBatches(2, 2);
  CHECK(ServeStep(ends[2].receiver(), 0) == std::vector<uint64_t>{0, 1});
  const absl::StatusOr<ActivationAnswer> answer = front.get();
  REQUIRE(answer.ok());
  CHECK_FALSE(answer->too_late);
  CHECK(IsTwice(answer->gradient, own.values));
  CHECK(second.get().ok());
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
  auto front = ends.Exchange(0, own);
  auto linear = Async([&] { return ends[1].receiver()->Next(7, Generation()).status(); });
  ends.AwaitBatches(1, 1);
  ends.AwaitTroubles(1);  // The linear worker's: its wait is no short one.
  ends[0].Cancel();
  ends[1].Cancel();
  CHECK(front.get().status().code() == absl::StatusCode::kCancelled);
  CHECK(linear.get().code() == absl::StatusCode::kCancelled);
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
  const absl::Time begin = SteadyNow();
  const auto other = GrpcServer::Start({"127.0.0.1:0", {}});  // Which knows of no activations.
  REQUIRE(other.ok());
  Ends ends(1, 1);
  ends.Lead(1, (*other)->address());
  const OwnBatch own(0);
  const auto answer = ends[0].sender()->Exchange(own.batch);
  CHECK(answer.status().code() == absl::StatusCode::kUnimplemented);
  CHECK(std::string(answer.status().message()).find((*other)->address()) != std::string::npos);
  CHECK(SteadyNow() - begin < absl::Seconds(10));
}

TEST_CASE("nobody is given up while the coordinator is away", "[activations]") {
  const absl::Duration retry_time = absl::Milliseconds(300);
  Ends ends(1, 2, retry_time);
  const OwnBatch own(3);
  ends[0].SetAway(true);
  ends.Lose(1);
  auto front = ends.Exchange(0, own);
  ends.AwaitTroubles(1);
  // It goes on to fail when the time is long over.
  const absl::Time first_failure = SteadyNow();
  while (SteadyNow() - first_failure < 2 * retry_time) ends.AwaitTroubles(ends.troubles() + 1);
  ends.Tell();
  ends.AwaitBatches(2, 1);
  CHECK(ServeStep(ends[2].receiver(), 0) == std::vector<uint64_t>{0});
  const absl::StatusOr<ActivationAnswer> answer = front.get();
  INFO(answer.status().message());
  REQUIRE(answer.ok());
  CHECK(IsTwice(answer->gradient, own.values));
}

TEST_CASE("one that leaves waits for none of a half that has nobody left", "[activations]") {
  Ends ends(1, 1);
  ends.Lose(1);
  ends.Tell();
  const OwnBatch own(0);
  auto front = ends.Exchange(0, own);
  // It has found nobody, and has not given up at that.
  ends.AwaitTroubles(3);
  ends[0].Leave();
  const absl::StatusOr<ActivationAnswer> answer = front.get();
  REQUIRE(answer.ok());
  CHECK(answer->too_late);

  Ends others(1, 1);
  others.Lose(0);
  others.Tell();
  auto linear = Async([&] { return others[1].receiver()->Next(0, Generation()); });
  others.AwaitTroubles(1);  // Its wait is no short one.
  others[1].Leave();
  const absl::StatusOr<const ActivationReceiver::Batch*> batch = linear.get();
  REQUIRE(batch.ok());
  CHECK(*batch == nullptr);
}

TEST_CASE("both sides wait until they know who takes part", "[activations]") {
  Ends ends(1, 1);
  OwnBatch own(0);
  own.batch.plan = Generation(2);
  std::atomic<int> over{0};
  auto front = Async([&] {
    absl::StatusOr<ActivationAnswer> answer = ends[0].sender()->Exchange(own.batch);
    ++over;
    return answer;
  });
  auto linear = Async([&] {
    std::vector<uint64_t> senders;
    const auto batch = ends[1].receiver()->Next(0, Generation(2));
    if (batch.ok() && *batch != nullptr) {
      senders.push_back((*batch)->sender.value());
      ends[1].receiver()->Answer(1, (*batch)->activations);
    }
    ++over;
    return senders;
  });
  // Both have asked for the list at once.
  ends.AwaitTroubles(2);
  CHECK(over == 0);
  ends.Tell();
  CHECK(front.get().ok());
  CHECK(linear.get() == std::vector<uint64_t>{0});
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
  auto front = ends.Exchange(0, own);
  CHECK(ServeStep(ends[1].receiver(), 1) == std::vector<uint64_t>{0});
  const absl::StatusOr<ActivationAnswer> next = front.get();
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
  auto front = ends.Exchange(1, own);
  CHECK(ServeStep(ends[2].receiver(), 0) == std::vector<uint64_t>{1});
  CHECK(front.get().ok());
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

TEST_CASE("calls that are cut off at any moment leave the linear worker as it was", "[activations]") {
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
  CheckThatNothingIsUnpacked(std::stoi(address.substr(address.rfind(':') + 1)), "/tessera.v1.Activations/Exchange");
  auto linear = ends.Serve(1, 0);
  const OwnBatch own(0);
  CHECK(ends[0].sender()->Exchange(own.batch).ok());
  CHECK(linear.get() == std::vector<uint64_t>{0});
}

}  // namespace
}  // namespace tessera
