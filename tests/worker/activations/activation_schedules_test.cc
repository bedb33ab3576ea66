// Workers of both halves under schedules of all kinds: calls that break and are repeated, workers that die, and
// others that hear of it late. Whatever happens, nobody waits for ever, and a batch counts once.
#include <catch2/catch.hpp>

#include <functional>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "tests/worker/activations/lists.h"
#include "worker/activations/activation_queue.h"

namespace tessera {
namespace {

constexpr uint64_t kSteps = 6;
constexpr int kActionsMax = 20000;

// Loops of workers as train loops are: a step of a worker with data ends with an answer, one of a linear worker when
// nothing is missing; all that live push each step before anybody begins the next.
class World {
 public:
  World(uint64_t seed, int front, int linear)
      : random_(seed), split_(SplitOf(front, linear)), workers_(front + linear) {
    for (int rank = 0; rank < front + linear; ++rank) {
      Worker& worker = workers_[rank];
      worker.list = ListOf(split_, 1);
      if (rank < front) continue;
      worker.queue = std::make_unique<ActivationQueue>(
          ActivationQueue::Options{MemberAt(rank), split_, 1, 1, 1, /*has_classes=*/true});
      worker.queue->SetWorkers(worker.list);
    }
  }

  // False: somebody waits for ever.
  bool Run() {
    for (int i = 0; i < kActionsMax; ++i) {
      if (IsOver()) return true;
      std::vector<std::function<void()>> actions = Actions();
      if (actions.empty()) return false;
      actions[random_() % actions.size()]();
    }
    return false;
  }

  void CheckCounts(bool had_losses) const {
    for (const auto& [batch, counts] : counted_) CHECK(counts == 1);
    if (had_losses) return;
    CHECK(counted_.size() == kSteps * static_cast<uint64_t>(split_.front_workers));
    CHECK(too_late_ == 0);
  }
  void LetDie(int deaths) { deaths_left_ = deaths; }
  bool had_losses() const { return !gone_.empty(); }

 private:
  struct Worker {
    uint64_t step = 0;
    bool pushed = false;
    v1::WorkerList list;
    std::unique_ptr<ActivationQueue> queue;  // a linear worker's
    // Of one with data: its call is on its way to that rank; -1: none is.
    int asked = -1;
    bool answered = false;
  };

  bool lives(size_t rank) const { return gone_.count(rank) == 0; }
  bool IsOver() const {
    for (size_t rank = 0; rank < workers_.size(); ++rank) {
      if (lives(rank) && workers_[rank].step < kSteps) return false;
    }
    return true;
  }

  std::vector<std::function<void()>> Actions() {
    std::vector<std::function<void()>> actions;
    bool all_pushed = true;
    for (size_t rank = 0; rank < workers_.size(); ++rank) {
      if (!lives(rank)) continue;
      Worker& worker = workers_[rank];
      all_pushed = all_pushed && worker.pushed;
      if (worker.list.generation() < generation_) {
        actions.push_back([this, rank] { Hear(rank); });
      }
      if (worker.step == kSteps || worker.pushed) continue;
      if (worker.queue != nullptr) {
        actions.push_back([this, rank] { Collect(rank); });
      } else if (worker.answered) {
        actions.push_back([&worker] { worker.pushed = true; });
      } else {
        actions.push_back([this, rank] { Ask(rank); });
      }
    }
    // A linear worker that only looks again does nothing.
    if (!IsOver() && all_pushed) actions.push_back([this] { Commit(); });
    if (deaths_left_ > 0) {
      for (size_t rank = 0; rank < workers_.size(); ++rank) {
        if (MayDie(rank)) actions.push_back([this, rank] { Die(rank); });
      }
    }
    return actions;
  }

  // Of each half somebody is left: otherwise the coordinator ends the job.
  bool MayDie(size_t rank) const {
    if (!lives(rank)) return false;
    int others = 0;
    for (size_t other = 0; other < workers_.size(); ++other) {
      others += other != rank && lives(other) && split_.is_linear(Rank(other)) == split_.is_linear(Rank(rank));
    }
    return others > 0;
  }

  void Die(size_t rank) {
    --deaths_left_;
    gone_.insert(rank);
    ++generation_;
    // The shards wait no longer.
    for (Worker& worker : workers_) {
      if (worker.asked == static_cast<int>(rank)) worker.asked = -1;
    }
  }

  void Hear(size_t rank) {
    Worker& worker = workers_[rank];
    worker.list = ListOf(split_, generation_, gone_);
    if (worker.queue != nullptr) worker.queue->SetWorkers(worker.list);
    // As ActivationClient does: a call to one that is none any more is given up.
    const std::optional<LayerWorker> target = LayerWorkers(worker.list, split_).LinearOf(MemberAt(rank));
    if (worker.asked >= 0 && target && target->rank != Rank(worker.asked)) worker.asked = -1;
  }

  // Sends, or sends once more although the first call goes on: its connection broke.
  void Ask(size_t rank) {
    Worker& worker = workers_[rank];
    const std::optional<LayerWorker> target = LayerWorkers(worker.list, split_).LinearOf(MemberAt(rank));
    if (!target) return;
    const auto to = static_cast<size_t>(target->rank.value());
    if (!lives(to)) return;  // Not reached: it tries again.
    ActivationQueue& queue = *workers_[to].queue;
    const ComingBatch batch{MemberAt(rank), worker.step, 1, true, 8};
    if (!queue.Check(batch).ok()) return;
    worker.asked = static_cast<int>(to);
    const std::string bytes(8, '\0');
    Payload payload;
    payload.Append({bytes.data(), 8}, nullptr);
    const uint64_t step = worker.step;
    auto waiting = ActivationQueue::Unpack(
        queue.options(), batch, payload, [this, rank, step, to](std::shared_ptr<const GradientAnswer> answer) {
          Worker& asker = workers_[rank];
          // A call that was given up has nobody to answer to.
          if (asker.step != step || asker.asked != static_cast<int>(to) || asker.answered) return;
          // Another call has its place; this one's worker asks again.
          if (answer == nullptr) return;
          asker.answered = true;
          if (answer->too_late) ++too_late_;
        });
    REQUIRE(waiting.ok());
    queue.Deliver(*std::move(waiting)).Send();
  }

  void Collect(size_t rank) {
    Worker& worker = workers_[rank];
    switch (worker.queue->Take(worker.step)) {
      case ActivationQueue::Turn::kBatch:
        ++counted_[{worker.queue->batch().sender.value(), worker.step, rank}];
        worker.queue->Answer(1, std::vector<float>{1}).Send();
        return;
      case ActivationQueue::Turn::kMissing:
        return;
      case ActivationQueue::Turn::kOver:
        for (const DueAnswer& due : worker.queue->TakeLate()) due.Send();
        worker.pushed = true;
    }
  }

  void Commit() {
    for (Worker& worker : workers_) {
      ++worker.step;
      worker.pushed = false;
      worker.answered = false;
      worker.asked = -1;
    }
  }

  std::mt19937_64 random_;
  const LayerSplit split_;
  std::vector<Worker> workers_;
  std::set<uint64_t> gone_;
  uint64_t generation_ = 1;
  int deaths_left_ = 0;
  std::map<std::tuple<uint64_t, uint64_t, size_t>, int> counted_;
  int too_late_ = 0;
};

TEST_CASE("nobody waits for ever, whoever is lost whenever", "[activations][seeds]") {
  int losses = 0;
  for (uint64_t seed = 0; seed < 20000; ++seed) {
    INFO("seed " << seed);
    const int linear = 1 + static_cast<int>(seed % 3);
    const int front = linear + static_cast<int>(seed / 3 % 4);
    World world(seed, front, linear);
    world.LetDie(static_cast<int>(seed / 12 % 4));
    REQUIRE(world.Run());
    world.CheckCounts(world.had_losses());
    losses += world.had_losses();
  }
  CHECK(losses > 8000);
}

}  // namespace
}  // namespace tessera
