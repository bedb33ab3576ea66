// Workers of both halves under schedules of all kinds: calls that break and are repeated, workers that die, others
// that join in their place, and those that hear of it late. Whatever happens, nobody waits for ever, and a batch
// counts once.
#include <catch2/catch.hpp>

#include <algorithm>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "tests/worker/activations/lists.h"
#include "worker/activations/activation_queue.h"

namespace tessera {
namespace {

constexpr uint64_t kSteps = 8;
constexpr int kActionsMax = 20000;

// Loops of workers as train loops are: a step of a worker with data ends with an answer, one of a linear worker when
// nothing is missing; all that take part push each step before anybody begins the next, with the plan that counts
// then. A worker joins with an exchange that nobody has begun, as the shards promise.
class World {
 public:
  World(uint64_t seed, int front, int linear)
      : random_(seed), split_(SplitOf(front, linear)), tells_late_(random_() % 2 == 0) {
    for (int rank = 0; rank < front + linear; ++rank) Add(static_cast<uint64_t>(rank), 0);
    for (Worker& worker : workers_) Hear(&worker);
    Count();
  }

  // False: somebody waits for ever.
  bool Run() {
    for (int i = 0; i < kActionsMax; ++i) {
      if (step_ == kSteps) return true;
      std::vector<std::function<void()>> actions = Actions();
      if (actions.empty()) return false;
      actions[random_() % actions.size()]();
    }
    return false;
  }

  void Check() const {
    for (const auto& [batch, counts] : counted_) CHECK(counts == 1);
    // Where nobody came or went in a step or the one before, all that there is was trained, by whoever was there.
    for (uint64_t step = 0; step < kSteps; ++step) {
      if (At(changes_, step) > 0 || (step > 0 && At(changes_, step - 1) > 0)) continue;
      INFO("step " << step);
      size_t counted = 0;
      for (const auto& [batch, counts] : counted_) counted += std::get<1>(batch) == step;
      CHECK(counted == (linears_.at(step) > 0 ? fronts_.at(step) : 0));
      CHECK(At(too_late_, step) == 0);
    }
  }
  void LetDie(int deaths) { deaths_left_ = deaths; }
  void LetJoin(int joiners) { joiners_left_ = joiners; }
  int deaths() const { return deaths_; }
  int joined() const { return joined_; }

 private:
  struct Worker {
    MemberId member;
    Rank rank;
    uint64_t first_step = 0;
    bool lives = true;
    bool pushed = false;
    // Of the values that it trains with, and what it has heard.
    Generation plan;
    v1::WorkerList list;
    std::unique_ptr<ActivationQueue> queue;  // a linear worker's
    // Of one with data: its call is on its way to that member; 0: none is.
    MemberId asked;
    bool answered = false;
  };

  static int At(const std::map<uint64_t, int>& by_step, uint64_t step) {
    const auto found = by_step.find(step);
    return found == by_step.end() ? 0 : found->second;
  }

  void Add(uint64_t rank, uint64_t first_step) {
    Worker& worker = workers_.emplace_back();
    worker.member = MemberId(workers_.size());
    worker.rank = Rank(rank);
    worker.first_step = first_step;
    worker.plan = Generation(generation_);
    if (!split_.is_linear(worker.rank)) return;
    worker.queue = std::make_unique<ActivationQueue>(
        ActivationQueue::Options{worker.member, split_, 1, 1, 1, /*has_classes=*/true});
  }

  bool IsLinear(const Worker& worker) const { return split_.is_linear(worker.rank); }
  bool TakesPart(const Worker& worker) const { return worker.lives && worker.first_step <= step_; }

  // As server/control/layer_workers.cc.
  v1::WorkerList List() const {
    v1::WorkerList list;
    list.set_generation(generation_);
    std::vector<const Worker*> by_rank;
    for (const Worker& worker : workers_) by_rank.push_back(&worker);
    std::stable_sort(by_rank.begin(), by_rank.end(),
                     [](const Worker* a, const Worker* b) { return a->rank < b->rank; });
    for (const Worker* worker : by_rank) {
      const bool is_former =
          IsLinear(*worker) && worker->first_step > 0 && worker->first_step >= step_;
      if (!worker->lives && !is_former) continue;
      v1::WorkerEntry& entry = worker->lives ? *list.add_workers() : *list.add_former();
      entry.set_member(worker->member.value());
      entry.set_rank(static_cast<uint32_t>(worker->rank.value()));
      entry.set_address(absl::StrCat("host-", worker->rank.value(), ":1"));
      entry.set_first_step(worker->first_step);
    }
    return list;
  }

  std::vector<std::function<void()>> Actions() {
    std::vector<std::function<void()>> actions;
    bool all_pushed = true;
    for (Worker& worker : workers_) {
      if (!worker.lives) continue;
      // Some worlds tell nobody before he asks.
      const bool asks = worker.list.generation() < worker.plan.value() || random_() % 16 == 0;
      if (worker.list.generation() < generation_ && (asks || !tells_late_)) {
        actions.push_back([this, &worker] { Hear(&worker); });
      }
      if (!TakesPart(worker)) continue;
      all_pushed = all_pushed && worker.pushed;
      if (worker.pushed) continue;
      if (worker.queue != nullptr) {
        actions.push_back([this, &worker] { Collect(&worker); });
      } else if (worker.answered) {
        actions.push_back([&worker] { worker.pushed = true; });
      } else {
        actions.push_back([this, &worker] { Ask(&worker); });
      }
    }
    // A linear worker that only looks again does nothing.
    if (all_pushed) actions.push_back([this] { Commit(); });
    // Not all in the first steps.
    const bool may_die = deaths_left_ > 0 && random_() % 16 == 0,
               may_join = joiners_left_ > 0 && random_() % 8 == 0;
    for (size_t i = 0; i < workers_.size(); ++i) {
      if (may_die && MayDie(workers_[i])) actions.push_back([this, i] { Die(&workers_[i]); });
    }
    for (uint64_t rank = 0;
         rank < static_cast<uint64_t>(split_.front_workers + split_.linear_workers); ++rank) {
      const bool is_held = std::any_of(workers_.begin(), workers_.end(), [&](const Worker& worker) {
        return worker.lives && worker.rank == Rank(rank);
      });
      if (may_join && !is_held) actions.push_back([this, rank] { Join(rank); });
    }
    return actions;
  }

  // Of each half somebody is left, if only from a later step on: otherwise the coordinator ends the job.
  bool MayDie(const Worker& worker) const {
    if (!worker.lives) return false;
    return std::any_of(workers_.begin(), workers_.end(), [&](const Worker& other) {
      return other.lives && other.member != worker.member && IsLinear(other) == IsLinear(worker);
    });
  }

  void Die(Worker* worker) {
    --deaths_left_;
    ++deaths_;
    ++changes_[step_];
    worker->lives = false;
    ++generation_;
    // The shards wait no longer.
    for (Worker& other : workers_) {
      if (other.asked == worker->member) other.asked = MemberId();
    }
  }

  void Join(uint64_t rank) {
    --joiners_left_;
    ++generation_;
    Add(rank, step_ + 1 + random_() % 3);
    if (workers_.back().first_step >= kSteps) return;
    ++joined_;
    ++changes_[workers_.back().first_step];
  }

  void Hear(Worker* worker) {
    worker->list = List();
    if (worker->queue != nullptr) worker->queue->SetWorkers(worker->list);
    // As ActivationClient does: a call to one that is none any more is given up.
    const std::optional<LayerWorker> target =
        LayerWorkers(worker->list, split_).LinearOf(worker->member, step_);
    if (!target || target->member != worker->asked) worker->asked = MemberId();
  }

  // Sends, or sends once more although the first call goes on: its connection broke.
  void Ask(Worker* asker) {
    const LayerWorkers known(asker->list, split_);
    if (known.generation() < asker->plan) return;
    const std::optional<LayerWorker> target = known.LinearOf(asker->member, step_);
    if (!target) {
      asker->answered = known.LinearComesLater(step_);
      return;
    }
    const size_t to = target->member.value() - 1;
    if (!workers_[to].lives) return;  // Not reached: it tries again.
    ActivationQueue& queue = *workers_[to].queue;
    const ComingBatch batch{asker->member, step_, 1, true, 8};
    if (!queue.Check(batch).ok()) return;
    asker->asked = target->member;
    const std::string bytes(8, '\0');
    Payload payload;
    payload.Append({bytes.data(), 8}, nullptr);
    auto waiting =
        ActivationQueue::Unpack(queue.options(), batch, payload,
                                [this, from = asker->member, step = step_, to = target->member](
                                    std::shared_ptr<const GradientAnswer> answer) {
                                  Worker& sender = workers_[from.value() - 1];
                                  // A call that was given up has nobody to answer to.
                                  if (step_ != step || sender.asked != to || sender.answered) {
                                    return;
                                  }
                                  // Another call has its place; this one's worker asks again.
                                  if (answer == nullptr) return;
                                  sender.answered = true;
                                  too_late_[step] += answer->too_late;
                                });
    REQUIRE(waiting.ok());
    queue.Deliver(*std::move(waiting)).Send();
  }

  void Collect(Worker* worker) {
    switch (worker->queue->Take(step_, worker->plan)) {
      case ActivationQueue::Turn::kBatch:
        ++counted_[{worker->queue->batch().sender.value(), step_, worker->member}];
        worker->queue->Answer(1, std::vector<float>{1}).Send();
        // Those who have just come die most easily, when nobody may have heard of them.
        if (worker->first_step == step_ && step_ > 0 && deaths_left_ > 0 && MayDie(*worker) &&
            random_() % 2 == 0) {
          Die(worker);
        }
        return;
      case ActivationQueue::Turn::kNoPlan:
      case ActivationQueue::Turn::kMissing:
        return;
      case ActivationQueue::Turn::kOver:
        for (const DueAnswer& due : worker->queue->TakeLate()) due.Send();
        worker->pushed = true;
    }
  }

  void Commit() {
    ++step_;
    for (Worker& worker : workers_) {
      worker.plan = Generation(generation_);
      worker.pushed = false;
      worker.answered = false;
      worker.asked = MemberId();
    }
    Count();
  }

  void Count() {
    for (const Worker& worker : workers_) {
      fronts_[step_] += TakesPart(worker) && !IsLinear(worker);
      linears_[step_] += TakesPart(worker) && IsLinear(worker);
    }
  }

  std::mt19937_64 random_;
  const LayerSplit split_;
  const bool tells_late_;
  std::deque<Worker> workers_;  // member m at m - 1
  uint64_t step_ = 0;           // of all that take part
  uint64_t generation_ = 1;
  int deaths_left_ = 0, joiners_left_ = 0;
  int deaths_ = 0, joined_ = 0;
  // By sender, step and receiver.
  std::map<std::tuple<uint64_t, uint64_t, MemberId>, int> counted_;
  std::map<uint64_t, int> too_late_;
  // By step: who died or joined, and how many of each half took part when it began.
  std::map<uint64_t, int> changes_;
  std::map<uint64_t, size_t> fronts_, linears_;
};

TEST_CASE("nobody waits for ever, whoever is lost and comes whenever", "[activations][seeds]") {
  int losses = 0, joined = 0;
  for (uint64_t seed = 0; seed < 30000; ++seed) {
    INFO("seed " << seed);
    const int linear = 1 + static_cast<int>(seed % 3);
    const int front = linear + static_cast<int>(seed / 3 % 4);
    World world(seed, front, linear);
    world.LetDie(static_cast<int>(seed / 12 % 6));
    world.LetJoin(static_cast<int>(seed / 72 % 4));
    REQUIRE(world.Run());
    world.Check();
    losses += world.deaths() > 0;
    joined += world.joined() > 0;
  }
  CHECK(losses > 15000);
  CHECK(joined > 10000);
}

}  // namespace
}  // namespace tessera
