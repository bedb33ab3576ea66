// What a linear worker collects: in which order, once each, and what is said to those who come too late.
#include <catch2/catch.hpp>

#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "tests/worker/activations/lists.h"
#include "worker/activations/activation_queue.h"

namespace tessera {
namespace {

constexpr int64_t kFeatures = 3;
constexpr int64_t kOutputs = 4;

ActivationQueue::Options OptionsOf(int front, int linear, bool has_classes = true) {
  return {MemberAt(front), SplitOf(front, linear), /*rows_max=*/8, kFeatures, kOutputs,
          has_classes};
}

ComingBatch Coming(uint64_t rank, uint64_t step, uint64_t rows = 2, bool has_classes = true) {
  const uint64_t kinds = has_classes ? 1 : kOutputs;
  return {MemberAt(rank), step, rows, has_classes, rows * (kinds + kFeatures) * 4};
}

struct Sent {
  std::string bytes;
  Payload payload;
};

// Classes 0, 1, ... and activations that begin at `first`.
std::shared_ptr<Sent> BytesOf(const ComingBatch& batch, float first, int32_t class_of_first = 0) {
  auto sent = std::make_shared<Sent>();
  const auto put = [&](auto value) {
    sent->bytes.append(reinterpret_cast<const char*>(&value), sizeof(value));
  };
  for (uint64_t row = 0; batch.has_classes && row < batch.rows; ++row) {
    put(static_cast<int32_t>(row == 0 ? class_of_first : static_cast<int32_t>(row)));
  }
  for (uint64_t i = 0; !batch.has_classes && i < batch.rows * kOutputs; ++i) put(0.5f);
  for (uint64_t i = 0; i < batch.rows * kFeatures; ++i) put(first + static_cast<float>(i));
  // In pieces that end anywhere.
  const auto size = static_cast<int64_t>(sent->bytes.size());
  sent->payload.Append({sent->bytes.data(), 5}, nullptr);
  sent->payload.Append({sent->bytes.data() + 5, size - 5}, nullptr);
  return sent;
}

class Queue {
 public:
  explicit Queue(const ActivationQueue::Options& options) : queue_(options) {
    queue_.SetWorkers(ListOf(options.split, 1));
  }
  ActivationQueue& operator*() { return queue_; }
  ActivationQueue* operator->() { return &queue_; }

  // The answer, once there is one. `ended` counts calls that got none.
  std::shared_ptr<std::shared_ptr<const GradientAnswer>> Send(const ComingBatch& batch,
                                                              float first = 0) {
    auto answer = std::make_shared<std::shared_ptr<const GradientAnswer>>();
    const std::shared_ptr<Sent> sent = BytesOf(batch, first);
    auto waiting = ActivationQueue::Unpack(queue_.options(), batch, sent->payload,
                                           [this, answer](std::shared_ptr<const GradientAnswer> a) {
                                             CHECK(*answer == nullptr);
                                             ended += a == nullptr;
                                             *answer = std::move(a);
                                           });
    REQUIRE(waiting.ok());
    queue_.Deliver(*std::move(waiting)).Send();
    return answer;
  }

  int ended = 0;

 private:
  ActivationQueue queue_;
};

using Turn = ActivationQueue::Turn;

TEST_CASE("batches are taken by rank, whatever comes first", "[activations]") {
  Queue queue(OptionsOf(3, 1));
  const auto last = queue.Send(Coming(2, 0), 30);
  CHECK(queue->Take(0, Generation(1)) == Turn::kMissing);
  const auto first = queue.Send(Coming(0, 0), 10);
  REQUIRE(queue->Take(0, Generation(1)) == Turn::kBatch);
  CHECK(queue->batch().sender == Rank(0));
  CHECK(queue->batch().activations[0] == 10);
  CHECK(queue->batch().activations[5] == 15);
  CHECK(queue->batch().classes[1] == 1);
  const std::vector<float> gradient = {1, 2, 3, 4, 5, 6};
  queue->Answer(0.25, gradient).Send();
  REQUIRE(*first != nullptr);
  CHECK((*first)->loss == 0.25);
  CHECK((*first)->gradient == gradient);
  CHECK(queue->Take(0, Generation(1)) == Turn::kMissing);
  queue.Send(Coming(1, 0), 20);
  REQUIRE(queue->Take(0, Generation(1)) == Turn::kBatch);
  CHECK(queue->batch().sender == Rank(1));
  queue->Answer(1, gradient).Send();
  REQUIRE(queue->Take(0, Generation(1)) == Turn::kBatch);
  CHECK(queue->batch().activations[0] == 30);
  CHECK(*last == nullptr);
  queue->Answer(1, gradient).Send();
  CHECK(*last != nullptr);
  CHECK(queue->Take(0, Generation(1)) == Turn::kOver);
  CHECK(queue->TakeLate().empty());
  // That of the next step waits for its turn.
  queue.Send(Coming(0, 1));
  CHECK(queue->Take(1, Generation(1)) == Turn::kBatch);
}

TEST_CASE("a batch that is repeated counts once and gets the same answer", "[activations]") {
  Queue queue(OptionsOf(1, 1));
  queue.Send(Coming(0, 0));
  REQUIRE(queue->Take(0, Generation(1)) == Turn::kBatch);
  // While it is computed, as the first call broke.
  const auto again = queue.Send(Coming(0, 0));
  queue->Answer(2, std::vector<float>(6, 1)).Send();
  REQUIRE(*again != nullptr);
  CHECK((*again)->loss == 2);
  CHECK(queue->Take(0, Generation(1)) == Turn::kOver);
  const auto later = queue.Send(Coming(0, 0));
  REQUIRE(*later != nullptr);
  CHECK_FALSE((*later)->too_late);
  CHECK((*later)->gradient == std::vector<float>(6, 1));
  CHECK(queue->Take(1, Generation(1)) == Turn::kMissing);
}

TEST_CASE("a later call of a member ends the one whose place it takes", "[activations]") {
  Queue queue(OptionsOf(2, 1));
  const auto first = queue.Send(Coming(0, 0), 1);
  CHECK(queue.ended == 0);
  const auto again = queue.Send(Coming(0, 0), 2);
  CHECK(queue.ended == 1);
  REQUIRE(queue->Take(0, Generation(1)) == Turn::kBatch);
  CHECK(queue->batch().activations[0] == 2);
  // Also one whose batch is being computed.
  const auto last = queue.Send(Coming(0, 0), 2);
  CHECK(queue.ended == 2);
  queue->Answer(1, std::vector<float>(6, 1)).Send();
  CHECK(*first == nullptr);
  CHECK(*again == nullptr);
  CHECK(*last != nullptr);
  CHECK(queue.ended == 2);
}

TEST_CASE("who is waited for is known by name", "[activations]") {
  Queue queue(OptionsOf(3, 1));
  CHECK(queue->Missing().empty());
  queue.Send(Coming(1, 0));
  CHECK(queue->Take(0, Generation(1)) == Turn::kMissing);
  CHECK(queue->Missing() == std::vector<Rank>{Rank(0), Rank(2)});
  queue.Send(Coming(0, 0));
  REQUIRE(queue->Take(0, Generation(1)) == Turn::kBatch);
  CHECK(queue->Missing() == std::vector<Rank>{Rank(2)});
  queue->Answer(1, std::vector<float>(6, 1)).Send();
}

TEST_CASE("all that wait can be let go, and what is computed then is answered to nobody",
          "[activations]") {
  Queue queue(OptionsOf(3, 1));
  const auto first = queue.Send(Coming(0, 0));
  queue.Send(Coming(1, 0));
  queue.Send(Coming(2, 1));
  REQUIRE(queue->Take(0, Generation(1)) == Turn::kBatch);
  for (const DueAnswer& due : queue->TakeAll()) due.Send();
  CHECK(queue.ended == 3);
  queue->Answer(1, std::vector<float>(6, 1)).Send();
  CHECK(*first == nullptr);
  CHECK(queue->Take(0, Generation(1)) == Turn::kMissing);
}

TEST_CASE("where nobody has data any more a step ends for one that leaves alone", "[activations]") {
  Queue queue(OptionsOf(1, 1));
  CHECK(queue->Take(0, Generation(1)) == Turn::kMissing);
  queue->SetWorkers(ListOf(SplitOf(1, 1), 2, {0}));
  CHECK(queue->Take(0, Generation(1)) == Turn::kMissing);
  CHECK(queue->Missing().empty());
  queue->Leave();
  CHECK(queue->Take(0, Generation(1)) == Turn::kOver);
}

TEST_CASE("values that are not finite are refused, each by its place", "[activations]") {
  Queue queue(OptionsOf(1, 1, /*has_classes=*/false));
  const ComingBatch batch = Coming(0, 0, 2, /*has_classes=*/false);
  const struct {
    size_t entry;  // of the payload: 8 targets, 6 activations
    float value;
    const char* words;
  } bad[] = {{3, NAN, "target 3 of row 0 is nan"},
             {6, INFINITY, "target 2 of row 1 is inf"},
             {8, -INFINITY, "activation 0 of row 0 is -inf"},
             {13, NAN, "activation 2 of row 1 is nan"}};
  for (const auto& each : bad) {
    INFO(each.words);
    const std::shared_ptr<Sent> sent = BytesOf(batch, 1);
    std::memcpy(&sent->bytes[each.entry * sizeof(float)], &each.value, sizeof(float));
    const auto waiting = ActivationQueue::Unpack(queue->options(), batch, sent->payload, {});
    CHECK(waiting.status().code() == absl::StatusCode::kInvalidArgument);
    CHECK(std::string(waiting.status().message()).find(each.words) != std::string::npos);
  }
}

TEST_CASE("nobody waits for one that is gone, and what it has sent counts for nothing",
          "[activations]") {
  const LayerSplit split = SplitOf(3, 1);
  Queue queue(OptionsOf(3, 1));
  queue.Send(Coming(0, 0));
  queue.Send(Coming(1, 0));
  REQUIRE(queue->Take(0, Generation(1)) == Turn::kBatch);
  queue->Answer(1, std::vector<float>(6)).Send();
  queue->SetWorkers(ListOf(split, 2, {1, 2}));
  CHECK(queue->Take(0, Generation(1)) == Turn::kOver);
  CHECK(queue->TakeLate().size() == 1);
  // An older list changes nothing.
  queue->SetWorkers(ListOf(split, 1));
  queue.Send(Coming(0, 1));
  CHECK(queue->Take(1, Generation(1)) == Turn::kBatch);
  queue->Answer(1, std::vector<float>(6)).Send();
  CHECK(queue->Take(1, Generation(1)) == Turn::kOver);
}

TEST_CASE("one that has lost its own is taken while the step is open, and told so afterwards",
          "[activations]") {
  Queue queue(OptionsOf(4, 2));  // Ranks 0 and 1 are its own.
  queue.Send(Coming(3, 0));
  queue.Send(Coming(0, 0));
  queue.Send(Coming(1, 0));
  for (const uint64_t rank : {0, 1, 3}) {
    REQUIRE(queue->Take(0, Generation(1)) == Turn::kBatch);
    CHECK(queue->batch().sender == Rank(rank));
    queue->Answer(1, std::vector<float>(6)).Send();
  }
  CHECK(queue->Take(0, Generation(1)) == Turn::kOver);
  const auto late = queue.Send(Coming(2, 0));
  REQUIRE(*late != nullptr);
  CHECK((*late)->too_late);
  CHECK((*late)->gradient.empty());
  // From now on it waits for them, whether it has heard why they come or not.
  queue.Send(Coming(0, 1));
  queue.Send(Coming(1, 1));
  REQUIRE(queue->Take(1, Generation(1)) == Turn::kBatch);
  queue->Answer(1, std::vector<float>(6)).Send();
  REQUIRE(queue->Take(1, Generation(1)) == Turn::kBatch);
  queue->Answer(1, std::vector<float>(6)).Send();
  CHECK(queue->Take(1, Generation(1)) == Turn::kMissing);
  queue->SetWorkers(ListOf(SplitOf(4, 2), 2, {2, 5}));
  queue.Send(Coming(3, 1));
  CHECK(queue->Take(1, Generation(1)) == Turn::kBatch);
}

TEST_CASE("nobody waits for one that has had its answer from a worker that is gone",
          "[activations]") {
  Queue queue(OptionsOf(2, 2));  // Rank 0 is its own, rank 1 the other one's.
  queue.Send(Coming(0, 0));
  REQUIRE(queue->Take(0, Generation(1)) == Turn::kBatch);
  queue->SetWorkers(ListOf(SplitOf(2, 2), 2, {3}));
  queue->Answer(1, std::vector<float>(6)).Send();
  CHECK(queue->Take(0, Generation(1)) == Turn::kOver);
}

TEST_CASE("a step begins once it is known who takes part in it", "[activations]") {
  Queue queue(OptionsOf(2, 1));
  queue.Send(Coming(0, 0));
  CHECK(queue->Take(0, Generation(3)) == Turn::kNoPlan);
  CHECK_FALSE(queue->Has(Generation(3)));
  queue->SetWorkers(ListOf(SplitOf(2, 1), 2, {1}));
  CHECK(queue->Take(0, Generation(3)) == Turn::kNoPlan);
  v1::WorkerList list = ListOf(SplitOf(2, 1), 3);
  list.mutable_workers(1)->set_member(9);
  list.mutable_workers(1)->set_first_step(1);
  queue->SetWorkers(list);
  CHECK(queue->Has(Generation(3)));
  // The one that joins has nothing to do with this step, and is waited for in the next one.
  REQUIRE(queue->Take(0, Generation(3)) == Turn::kBatch);
  queue->Answer(1, std::vector<float>(6)).Send();
  CHECK(queue->Take(0, Generation(3)) == Turn::kOver);
  queue.Send(Coming(0, 1));
  REQUIRE(queue->Take(1, Generation(3)) == Turn::kBatch);
  queue->Answer(1, std::vector<float>(6)).Send();
  CHECK(queue->Take(1, Generation(3)) == Turn::kMissing);
  CHECK(queue->Missing() == std::vector<Rank>{Rank(1)});
  queue.Send({MemberId(9), 1, 2, true, 2 * (1 + kFeatures) * 4});
  REQUIRE(queue->Take(1, Generation(3)) == Turn::kBatch);
  CHECK(queue->batch().sender == Rank(1));
}

TEST_CASE("nobody waits for one whose own worker is there again, unless it comes back",
          "[activations]") {
  const bool comes_back = GENERATE(false, true);
  const LayerSplit split = SplitOf(2, 2);  // Rank 0 is its own, rank 1 that of rank 3.
  Queue queue(OptionsOf(2, 2));
  queue->SetWorkers(ListOf(split, 2, {3}));
  for (uint64_t step = 0; step < 2; ++step) {
    queue.Send(Coming(0, step));
    queue.Send(Coming(1, step));
    for (int i = 0; i < 2; ++i) {
      REQUIRE(queue->Take(step, Generation(1)) == Turn::kBatch);
      queue->Answer(1, std::vector<float>(6)).Send();
    }
    CHECK(queue->Take(step, Generation(1)) == Turn::kOver);
  }
  // The one that takes part from step 2 on is gone before this worker hears of it.
  v1::WorkerList list = ListOf(split, 4, {3});
  v1::WorkerEntry& former = *list.add_former();
  former.set_member(9);
  former.set_rank(3);
  former.set_first_step(2);
  queue->SetWorkers(list);
  queue.Send(Coming(0, 2));
  if (comes_back) queue.Send(Coming(1, 2));
  for (int i = 0; i < 1 + comes_back; ++i) {
    REQUIRE(queue->Take(2, Generation(4)) == Turn::kBatch);
    queue->Answer(1, std::vector<float>(6)).Send();
  }
  CHECK(queue->Take(2, Generation(4)) == Turn::kOver);
  queue.Send(Coming(0, 3));
  REQUIRE(queue->Take(3, Generation(4)) == Turn::kBatch);
  queue->Answer(1, std::vector<float>(6)).Send();
  CHECK(queue->Take(3, Generation(4)) == (comes_back ? Turn::kMissing : Turn::kOver));
}

TEST_CASE("what is no batch of the job is refused, each with its word", "[activations]") {
  Queue queue(OptionsOf(2, 1));
  const auto error = [&](ComingBatch batch) { return std::string(queue->Check(batch).message()); };
  CHECK(queue->Check(Coming(0, 0, 8)).ok());
  CHECK(error(Coming(0, 3, 0)) ==
        "activations from member 1 step 3: rows are 0, want between 1 and 8");
  CHECK(error(Coming(0, 0, uint64_t{1} << 62)).find("rows are 4611686018427387904") !=
        std::string::npos);
  CHECK(error(Coming(0, 0, 2, false)).find("labels are targets, want classes") !=
        std::string::npos);
  ComingBatch batch = Coming(0, 0);
  batch.payload_bytes += 4;
  CHECK(error(batch).find("payload is 36 bytes, want 32 (2 rows of 3 values and a class)") !=
        std::string::npos);
  CHECK(queue->Check(Coming(8, 0)).code() == absl::StatusCode::kFailedPrecondition);
  const auto unpack = [&](const ComingBatch& facts, const Payload& payload) {
    return std::string(
        ActivationQueue::Unpack(queue->options(), facts, payload, nullptr).status().message());
  };
  CHECK(unpack(Coming(0, 0), Payload()).find("payload ended after 0 of 32 bytes") !=
        std::string::npos);
  CHECK(unpack(Coming(0, 0), BytesOf(Coming(0, 0), 0, 4)->payload)
            .find("class of row 0 is 4, want between 0 and 3") != std::string::npos);
  CHECK(unpack(Coming(0, 0), BytesOf(Coming(0, 0), 0, -1)->payload).find("is -1") !=
        std::string::npos);
}

TEST_CASE("targets come with the batch where labels are no classes", "[activations]") {
  Queue queue(OptionsOf(1, 1, /*has_classes=*/false));
  queue.Send(Coming(0, 0, 3, false), 7);
  REQUIRE(queue->Take(0, Generation(1)) == Turn::kBatch);
  CHECK(queue->batch().classes.empty());
  CHECK(queue->batch().targets.size() == 3 * kOutputs);
  CHECK(queue->batch().targets[11] == 0.5f);
  CHECK(queue->batch().activations.size() == 3 * kFeatures);
  CHECK(queue->batch().activations[8] == 15);
}

}  // namespace
}  // namespace tessera
