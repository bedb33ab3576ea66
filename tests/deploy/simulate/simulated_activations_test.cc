// Batches and their gradient between simulated workers, and what becomes of one whose receiver is not there.
#include "deploy/simulate/simulated_activations.h"

#include <catch2/catch.hpp>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "deploy/simulate/exchange_sizes.h"
#include "deploy/simulate/fiber.h"

namespace tessera {
namespace {

constexpr int64_t kRows = 2, kFeatures = 3;
constexpr SimNanos kLatency = 1'000'000, kBatchTime = 5'000'000;

// Member 1 on machine 0 has data; members 2 and 3 on machines 1 and 2 are linear.
class Workers {
 public:
  Workers() : world_(3, 0, Links()) {
    split_.front_workers = 1;
    split_.linear_workers = 2;
    pace_.step_time = kBatchTime;
    pace_.half = HalfPace{0, 0, 1};
  }
  ~Workers() { processes_.clear(); }

  SimulatedProcess* Spawn(SimNanos at, std::function<void()> body) {
    processes_.push_back(*SimulatedProcess::Create(std::move(body), Fiber::kStackBytes));
    SimulatedProcess* const process = processes_.back().get();
    world_.events.After(at, [process] { process->Start(); });
    return process;
  }
  v1::WorkerList List(uint64_t generation, std::vector<uint64_t> members) const {
    v1::WorkerList list;
    list.set_generation(generation);
    for (const uint64_t member : members) {
      v1::WorkerEntry& entry = *list.add_workers();
      entry.set_member(member);
      entry.set_rank(static_cast<uint32_t>(member - 1));
      entry.set_address(SimulatedAddress(static_cast<int>(member - 1)));
    }
    return list;
  }
  // Sends a batch of so many rows, whose values are all 4.
  SimulatedProcess* StartSender(int64_t rows = kRows) {
    SimulatedProcess* const process = Spawn(0, [this, rows] {
      const std::vector<float> values(static_cast<size_t>(rows * kFeatures), 4);
      const std::vector<int32_t> classes(static_cast<size_t>(rows), 1);
      ActivationBatch batch;
      batch.step = 7;
      batch.rows = rows;
      batch.activations = values;
      batch.classes = classes;
      answer_ = sender_->Exchange(batch);
      answered_at_ = world_.events.now();
      if (answer_->ok()) gradient_.assign((*answer_)->gradient.begin(), (*answer_)->gradient.end());
    });
    sender_ = std::make_unique<SimulatedSender>(
        SimulatedSender::Options{MemberId(1), 0, "digest", split_}, &world_, process, &inboxes_);
    sender_->SetWorkers(List(1, {1, 2, 3}));
    return process;
  }
  // From `at` on it takes a step's batches, and answers with twice what came.
  SimulatedProcess* StartReceiver(uint64_t member, SimNanos at) {
    receivers_.push_back(std::make_unique<Receiver>());
    Receiver* const self = receivers_.back().get();
    SimulatedProcess* const process = Spawn(at, [this, self, member] {
      inboxes_.emplace(MemberId(member), self->inbox.get());
      for (auto batch = self->inbox->Next(7, Generation()); batch.ok() && *batch != nullptr;
           batch = self->inbox->Next(7, Generation())) {
        std::vector<float> doubled((*batch)->activations.begin(), (*batch)->activations.end());
        for (float& value : doubled) value *= 2;
        self->inbox->Answer(0.5, doubled);
      }
    });
    self->work = std::make_unique<PacedWork>(pace_, &world_, static_cast<int>(member - 1), process);
    SimulatedInbox::Options options;
    options.queue.member = MemberId(member);
    options.queue.split = split_;
    options.queue.rows_max = kRows;
    options.queue.features = kFeatures;
    options.queue.outputs = 2;
    options.machine = static_cast<int>(member - 1);
    self->inbox =
        std::make_unique<SimulatedInbox>(std::move(options), &world_, process, self->work.get());
    self->inbox->SetWorkers(List(1, {1, 2, 3}));
    return process;
  }
  void RunUntil(SimNanos time) {
    world_.events.At(time, [] {});
    while (world_.events.now() < time) world_.events.RunNext();
  }
  SimulatedSender& sender() { return *sender_; }
  bool has_answer() const { return answer_.has_value(); }
  const absl::StatusOr<ActivationAnswer>& answer() const { return *answer_; }
  const std::vector<float>& gradient() const { return gradient_; }
  SimNanos answered_at() const { return answered_at_; }

 private:
  struct Receiver {
    std::unique_ptr<PacedWork> work;
    std::unique_ptr<SimulatedInbox> inbox;
  };
  static SimNetwork::Options Links() {
    SimNetwork::Options options;
    options.bandwidth = 1'000'000;
    options.latency = kLatency;
    return options;
  }

  SimulatedWorld world_;
  LayerSplit split_;
  WorkerPace pace_;
  SimulatedInboxes inboxes_;
  std::unique_ptr<SimulatedSender> sender_;
  std::vector<std::unique_ptr<Receiver>> receivers_;
  std::optional<absl::StatusOr<ActivationAnswer>> answer_;
  std::vector<float> gradient_;
  SimNanos answered_at_ = 0;
  std::vector<std::unique_ptr<SimulatedProcess>> processes_;
};

TEST_CASE("a batch takes its way, its computing and its gradient's way", "[activations]") {
  Workers workers;
  workers.StartReceiver(2, 0);
  workers.StartSender();
  workers.RunUntil(kNanosPerSecond);
  REQUIRE(workers.has_answer());
  REQUIRE(workers.answer().ok());
  CHECK(workers.answer()->loss == 0.5);
  CHECK(workers.gradient() == std::vector<float>(6, 8));
  CHECK(workers.sender().payload_bytes() == 4 * (6 + 2) + 4 * 6);
  const int64_t wire =
      ActivationWireBytes(CallerOf(MemberId(1), "digest"), 8, 24) + GradientWireBytes(24);
  CHECK(workers.answered_at() == 2 * kLatency + kBatchTime + 1000 * wire);
}

TEST_CASE("a batch that comes before its receiver is sent again", "[activations]") {
  Workers workers;
  workers.StartSender();
  workers.StartReceiver(2, 50'000'000);
  workers.RunUntil(kNanosPerSecond);
  REQUIRE(workers.has_answer());
  CHECK(workers.answer().ok());
  // After pauses of 20 and 40 ms.
  CHECK(workers.answered_at() > 60'000'000);
  CHECK(workers.answered_at() < 80'000'000);
  CHECK(workers.sender().payload_bytes() == 4 * (6 + 2) + 4 * 6);
}

TEST_CASE("a receiver that crashed is waited for until another one is named", "[activations]") {
  Workers workers;
  SimulatedProcess* const lost = workers.StartReceiver(2, 0);
  workers.StartReceiver(3, 0);
  workers.RunUntil(1'000);
  lost->Crash();
  workers.StartSender();
  workers.RunUntil(3 * kNanosPerSecond);
  CHECK_FALSE(workers.has_answer());
  workers.sender().SetWorkers(workers.List(2, {1, 3}));
  workers.RunUntil(4 * kNanosPerSecond);
  REQUIRE(workers.has_answer());
  REQUIRE(workers.answer().ok());
  // That one had nobody's batch to wait for, and was done with the step.
  CHECK(workers.answer()->too_late);
  CHECK(workers.gradient().empty());
}

TEST_CASE("a batch that is no batch of the job's is an error", "[activations]") {
  Workers workers;
  workers.StartReceiver(2, 0);
  workers.StartSender(/*rows=*/kRows + 1);
  workers.RunUntil(kNanosPerSecond);
  REQUIRE(workers.has_answer());
  CHECK(absl::IsInvalidArgument(workers.answer().status()));
}

TEST_CASE("a sender that is no member any more is told so", "[activations]") {
  Workers workers;
  SimulatedProcess* const process = workers.StartSender();
  workers.RunUntil(kNanosPerSecond);
  CHECK_FALSE(workers.has_answer());
  process->Interrupt();
  REQUIRE(workers.has_answer());
  CHECK(absl::IsCancelled(workers.answer().status()));
}

}  // namespace
}  // namespace tessera
