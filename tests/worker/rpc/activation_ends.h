// Both ends of activations in one process, over real connections, for tests.
#ifndef TESSERA_TESTS_WORKER_RPC_ACTIVATION_ENDS_H_
#define TESSERA_TESTS_WORKER_RPC_ACTIVATION_ENDS_H_

#include <algorithm>
#include <cstdint>
#include <future>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "tests/worker/activations/lists.h"
#include "worker/rpc/layer_exchange.h"

namespace tessera {

constexpr char kDigest[] = "0123";
constexpr int64_t kRows = 600;
// More than a chunk.
constexpr int64_t kFeatures = 1000;
constexpr int64_t kOutputs = 3;

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
inline std::vector<uint64_t> ServeStep(ActivationReceiver* receiver, uint64_t step) {
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
inline bool IsTwice(absl::Span<const float> gradient, const std::vector<float>& values) {
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
    list_.set_generation(list_.generation() + 1);
    left.set_generation(list_.generation());
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

}  // namespace tessera

#endif  // TESSERA_TESTS_WORKER_RPC_ACTIVATION_ENDS_H_
