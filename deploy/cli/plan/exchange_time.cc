#include "deploy/cli/plan/exchange_time.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <initializer_list>
#include <limits>

namespace tessera {
namespace {

constexpr size_t kLimits = static_cast<size_t>(Limit::kMemory) + 1;

struct Part {
  Limit limit = Limit::kComputing;
  double seconds = 0;
};

double Seconds(double bytes, double rate) { return rate > 0 ? bytes / rate : 0; }

// The part of the machines that is busiest, which bounds the exchange.
Part Longest(std::initializer_list<Part> parts) {
  return *std::max_element(parts.begin(), parts.end(),
                           [](const Part& a, const Part& b) { return a.seconds < b.seconds; });
}

// Parts that follow each other, and which of them is the longest when those of one kind are taken together.
class PartSequence {
 public:
  void Add(const Part& part) {
    seconds_ += part.seconds;
    by_limit_[static_cast<size_t>(part.limit)] += part.seconds;
  }
  double seconds() const { return seconds_; }
  Part longest() const {
    const auto most = std::max_element(by_limit_.begin(), by_limit_.end());
    return {static_cast<Limit>(most - by_limit_.begin()), *most};
  }

 private:
  double seconds_ = 0;
  std::array<double, kLimits> by_limit_ = {};
};

// How long each of `customers` waits at queues that take these times of each, with `elsewhere` between two rounds.
std::array<double, 3> WaitsAt(const std::array<double, 3>& times, double elsewhere,
                              int64_t customers) {
  std::array<double, 3> lengths = {}, waits = {};
  for (int64_t n = 1; n <= customers; ++n) {
    double cycle = elsewhere;
    for (size_t i = 0; i < times.size(); ++i) {
      waits[i] = times[i] * lengths[i];
      cycle += times[i] + waits[i];
    }
    for (size_t i = 0; i < times.size(); ++i) {
      lengths[i] = cycle > 0 ? static_cast<double>(n) * (times[i] + waits[i]) / cycle : 0;
    }
  }
  return waits;
}

CycleTime Cycle(double seconds, double computing, Limit limit) {
  return {seconds, seconds > 0 ? computing / seconds : 1, limit};
}

// Peers' answers and that of the own server are waited for at the same time.
CycleTime BetweenWorkers(const ExchangeWork& work, const Machines& machines) {
  const double computing = work.local_steps * work.step_seconds;
  const double fold = Seconds(work.fold_bytes, machines.fold_rate);
  PartSequence peers, own;
  if (machines.workers > 1) {
    peers.Add({Limit::kLatency, 2 * machines.latency});
    peers.Add({Limit::kWorkerLinks, Seconds(work.push_bytes, machines.bandwidth)});
  }
  own.Add({Limit::kFolding, fold});
  own.Add({Limit::kMemory, Seconds(work.pull_bytes, machines.memory_rate)});
  PartSequence cycle = peers.seconds() > own.seconds() ? peers : own;
  cycle.Add({Limit::kComputing, computing});
  const double of_all = static_cast<double>(machines.workers) * fold;
  const Part longest =
      Longest({{cycle.longest().limit, cycle.seconds()}, {Limit::kFolding, of_all}});
  return Cycle(longest.seconds, computing, longest.limit);
}

// What of the bytes that a worker of a half moves goes to the server beside it, where each has one.
double LocalShare(const HalfWork& half, double workers) {
  return static_cast<double>(half.servers_beside) >= workers ? 1 / workers : 0;
}

// What crosses the link of the half's busiest server, in bytes that one worker moves.
double ServerLoad(const HalfWork& half, double workers) {
  const double own = LocalShare(half, workers) > 0 ? 1 : 0;
  return (workers - own) * half.busiest_share;
}

}  // namespace

const char* Describe(Limit limit) {
  switch (limit) {
    case Limit::kComputing:
      return "computing";
    case Limit::kLatency:
      return "latency";
    case Limit::kWorkerLinks:
      return "workers' links";
    case Limit::kServerLinks:
      return "servers' links";
    case Limit::kFolding:
      return "servers' work";
    case Limit::kMemory:
      return "copying";
  }
  return "";
}

CycleTime TimeOf(const ExchangeWork& work, const Machines& machines) {
  if (work.between_workers) return BetweenWorkers(work, machines);
  const auto workers = static_cast<double>(machines.workers);
  const double computing = work.local_steps * work.step_seconds;
  const double push = Seconds(work.push_bytes, machines.bandwidth);
  const double pull = Seconds(work.pull_bytes, machines.bandwidth);
  const double share = work.busiest_share;
  const double fold = Seconds(work.fold_bytes, machines.fold_rate) * share;
  const double of_all = workers * share;

  PartSequence exchange;
  exchange.Add({Limit::kLatency, 2 * machines.latency});
  if (work.waits_for_all) {
    exchange.Add(Longest({{Limit::kWorkerLinks, push},
                          {Limit::kServerLinks, of_all * push},
                          {Limit::kFolding, workers * fold}}));
    exchange.Add({Limit::kFolding, fold});
    exchange.Add(Longest({{Limit::kWorkerLinks, pull}, {Limit::kServerLinks, of_all * pull}}));
    if (work.overlapped_steps > 0) {
      const double waited =
          std::max(0.0, exchange.seconds() - work.overlapped_steps * work.step_seconds);
      // The cycle's limit is whichever takes longer: the computing, or the exchange's longest part.
      const Part longest =
          Longest({{Limit::kComputing, computing}, {exchange.longest().limit, exchange.seconds()}});
      return Cycle(computing + waited, computing, waited > 0 ? longest.limit : Limit::kComputing);
    }
  } else {
    exchange.Add({Limit::kWorkerLinks, push});
    exchange.Add({Limit::kFolding, fold});
    exchange.Add({Limit::kWorkerLinks, pull});
  }
  PartSequence cycle = exchange;
  cycle.Add({Limit::kComputing, computing});
  if (!work.waits_for_all) {
    const std::array<double, 3> queues = {share * push, fold, share * pull};
    const double elsewhere = cycle.seconds() - queues[0] - queues[1] - queues[2];
    const std::array<double, 3> waits = WaitsAt(queues, std::max(0.0, elsewhere), machines.workers);
    cycle.Add({Limit::kServerLinks, waits[0] + waits[2]});
    cycle.Add({Limit::kFolding, waits[1]});
  }
  return Cycle(cycle.seconds(), computing, cycle.longest().limit);
}

double CrossingBytes(const HalfWork& half, double workers) {
  return (1 - LocalShare(half, workers)) * (half.push_bytes + half.pull_bytes);
}

CycleTime TimeOf(const HalvesWork& work, const Machines& machines, int64_t linear_workers) {
  const HalfWork &front = work.front, &linear = work.linear;
  const auto n_f = static_cast<double>(linear_workers);
  const double n_c = static_cast<double>(machines.workers) - n_f;
  // Minibatches of the linear worker that has most of them.
  const double most_batches = std::ceil(n_c / n_f);
  const double local_front = LocalShare(front, n_c), local_linear = LocalShare(linear, n_f);
  // The busiest server has a share of both halves, or of one.
  const auto busiest = [&](double of_front, double of_linear) {
    return linear.servers_beside > 0 ? std::max(of_front, of_linear) : of_front + of_linear;
  };
  const auto links = [&](double of_front, double of_linear) {
    return Longest(
        {{Limit::kWorkerLinks,
          Seconds(std::max((1 - local_front) * of_front, (1 - local_linear) * of_linear),
                  machines.bandwidth)},
         {Limit::kServerLinks,
          Seconds(busiest(ServerLoad(front, n_c) * of_front, ServerLoad(linear, n_f) * of_linear),
                  machines.bandwidth)},
         {Limit::kMemory, Seconds(std::max(local_front * of_front, local_linear * of_linear),
                                  machines.memory_rate)}});
  };
  const double folded = busiest(n_c * front.busiest_share * front.fold_bytes,
                                n_f * linear.busiest_share * linear.fold_bytes);
  const double last =
      std::max(front.busiest_share * front.fold_bytes, linear.busiest_share * linear.fold_bytes);

  PartSequence cycle;
  cycle.Add({Limit::kComputing, front.batch_seconds + most_batches * linear.batch_seconds});
  cycle.Add({Limit::kLatency, 4 * machines.latency});
  cycle.Add(
      {Limit::kWorkerLinks,
       Seconds(most_batches * (work.activation_bytes + work.gradient_bytes), machines.bandwidth)});
  cycle.Add(Longest({links(front.push_bytes, linear.push_bytes),
                     {Limit::kFolding, Seconds(folded, machines.fold_rate)}}));
  cycle.Add({Limit::kFolding, Seconds(last, machines.fold_rate)});
  cycle.Add(links(front.pull_bytes, linear.pull_bytes));
  const double computing =
      n_c * (front.batch_seconds + linear.batch_seconds) / static_cast<double>(machines.workers);
  return Cycle(cycle.seconds(), computing, cycle.longest().limit);
}

int64_t BestLinearWorkers(const HalvesWork& work, const Machines& machines, int64_t most) {
  int64_t best = 1;
  double best_seconds = std::numeric_limits<double>::infinity();
  for (int64_t linear = 1; linear <= std::min(most, machines.workers / 2); ++linear) {
    // The seconds of one minibatch.
    const double seconds =
        TimeOf(work, machines, linear).seconds / static_cast<double>(machines.workers - linear);
    if (seconds >= best_seconds) continue;
    best = linear;
    best_seconds = seconds;
  }
  return best;
}

}  // namespace tessera
