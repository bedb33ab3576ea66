// How long an exchange under a barrier lasts where each push takes a time of its own to arrive: by how
// many pushes there is room for, and by the order in which the workers begin to send.
//
//   bazel-bin/bench/staging/staging [--workers 4] [--mib 32] [--push_ms 200] [--exchanges 5] [--tiny]
//
// A shard's thread as in a server, and workers that ask it for a place for a whole slice, take
// `push_ms` to send it once they have one, hand it over and wait for the update. Nothing but that time
// passes on their links, so that the cores are the shard's. The numbers of places take turns; printed
// are medians, and the median of the ratios to one place alone. Of W workers with equal links and no
// limit an exchange lasts one push, with a place for the next push alone W, with one more W/2.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/synchronization/notification.h"
#include "bench/timing/timing.h"
#include "common/base/check.h"
#include "common/codec/payload.h"
#include "common/consistency/barrier.h"
#include "common/layout/parameters.h"
#include "common/rule/add.h"
#include "server/shard/block_store.h"
#include "server/shard/shard.h"
#include "server/shard/shard_thread.h"

namespace tessera {
namespace {

constexpr int64_t kColumns = 1024;
// Between the requests of two workers, so that the shard hears of them one by one.
constexpr std::chrono::milliseconds kApart(2);

struct Flags {
  int workers = 4;
  int64_t mebibytes = 32;
  int push_ms = 200;
  int exchanges = 5;
  bool tiny = false;
};

// A model of one matrix of so many bytes.
ModelShape OneMatrix(int64_t bytes) {
  ModelShape shape;
  ParameterSpec spec;
  spec.name = "layers.0.weight";
  spec.columns = kColumns;
  spec.rows = bytes / 4 / kColumns;
  shape.parameters = {spec};
  shape.size = spec.size();
  return shape;
}

// One shard and all its workers. Every push is ones, so that every exchange adds 1.
class Job {
 public:
  // Room for `others` pushes beside the next one's.
  Job(const Flags& flags, int others)
      : flags_(flags), ones_(flags.mebibytes << 18, 1.0f), thread_(MakeShard(flags, others)) {
    Plan plan;
    plan.generation = Generation(1);
    for (int k = 0; k < flags.workers; ++k) {
      plan.members.push_back({MemberId(k + 1), Rank(k), Exchange(1)});
    }
    thread_.PostOfPlan([plan](ServedShard& served) { served.SetPlan(plan); });
  }

  // Seconds of one exchange whose members ask in this order.
  double SecondsOf(const std::vector<int>& order) {
    ++exchange_;
    std::vector<std::thread> workers;
    const double seconds = Seconds([&] {
      for (const int worker : order) {
        auto granted = std::make_shared<absl::Notification>();
        thread_.Post([this, worker, granted](ServedShard& served) {
          served.Reserve(MemberId(worker + 1), bytes(), [granted](const absl::Status& status) {
            TESSERA_CHECK(status.ok());
            granted->Notify();
          });
        });
        workers.emplace_back([this, worker, granted] { Send(worker, granted.get()); });
        std::this_thread::sleep_for(kApart);
      }
      for (std::thread& worker : workers) worker.join();
    });
    return seconds;
  }

  bool IsRight() {
    bool right = true;
    absl::Notification done;
    thread_.Post([&](ServedShard& served) {
      const ReadResult read = served.shard().ReadNow();
      for (const auto& block : read.snapshot->blocks()) {
        for (int64_t i = 0; i < block->size(); ++i) {
          right = right && block->data()[i] == static_cast<float>(exchange_);
        }
      }
      done.Notify();
    });
    done.WaitForNotification();
    return right;
  }

 private:
  static std::unique_ptr<Shard> MakeShard(const Flags& flags, int others) {
    Shard::Options options;
    options.shape = OneMatrix(flags.mebibytes << 20);
    options.policy = MakeBarrier();
    options.rule = MakeAdd();
    ShardLimits limits;
    limits.staging_bytes = others * (flags.mebibytes << 20);
    limits.copy_bytes = std::max(kBlockBytes, flags.mebibytes << 20);
    options.limits = limits;
    return std::make_unique<Shard>(std::move(options));
  }

  int64_t bytes() const { return static_cast<int64_t>(ones_.size() * sizeof(float)); }

  void Send(int worker, absl::Notification* granted) {
    granted->WaitForNotification();
    std::this_thread::sleep_for(std::chrono::milliseconds(flags_.push_ms));
    ReceivedPush push;
    push.member = MemberId(worker + 1);
    push.exchange = Exchange(exchange_);
    push.layout_hash = thread_.traits().layout_hash;
    push.payload.Append({reinterpret_cast<const char*>(ones_.data()), bytes()}, nullptr);
    push.reserved_bytes = bytes();
    thread_.Post([push = std::move(push)](ServedShard& served) mutable {
      served.Accept(std::move(push), [](const absl::StatusOr<PushAccepted>& accepted) {
        TESSERA_CHECK(accepted.ok());
      });
    });
    absl::Notification read;
    thread_.Read<ReadResult>(
        MemberId(worker + 1), Exchange(exchange_), IdleNotice(),
        [&](Shard& shard) { return shard.Read(MemberId(worker + 1), Exchange(exchange_)); },
        [&](const absl::StatusOr<ReadResult>& result) {
          TESSERA_CHECK(result.ok());
          read.Notify();
        });
    read.WaitForNotification();
  }

  const Flags flags_;
  const std::vector<float> ones_;
  uint64_t exchange_ = 0;
  ShardThread thread_;
};

struct Places {
  std::string name;
  int others = 0;
  std::unique_ptr<Job> job;
  std::vector<double> seconds;
};

// Times exchanges with one place for pushes, with two, and with no limit, for each order of arrival.
int Run(const Flags& flags) {
  std::vector<Places> all;
  all.push_back({"one place", 0, nullptr, {}});
  all.push_back({"two places", 1, nullptr, {}});
  all.push_back({"no limit", flags.workers, nullptr, {}});
  for (Places& places : all) places.job = std::make_unique<Job>(flags, places.others);
  std::vector<int> ranks(flags.workers);
  for (int k = 0; k < flags.workers; ++k) ranks[k] = k;
  std::mt19937 random(1);
  const std::pair<const char*, std::function<std::vector<int>()>> orders[] = {
      {"rank order", [&] { return ranks; }},
      {"the last rank first", [&] { return std::vector<int>(ranks.rbegin(), ranks.rend()); }},
      {"any order",
       [&] {
         std::vector<int> order = ranks;
         std::shuffle(order.begin(), order.end(), random);
         return order;
       }},
  };
  std::printf("%d workers, pushes of %ld MiB that take %d ms each\n", flags.workers,
              static_cast<long>(flags.mebibytes), flags.push_ms);
  for (const auto& [name, make_order] : orders) {
    for (Places& places : all) places.seconds.clear();
    for (int i = 0; i < flags.exchanges; ++i) {
      const std::vector<int> order = make_order();
      for (Places& places : all) places.seconds.push_back(places.job->SecondsOf(order));
    }
    for (const Places& places : all) {
      std::vector<double> ratios;
      for (int i = 0; i < flags.exchanges; ++i) {
        ratios.push_back(places.seconds[i] / all[0].seconds[i]);
      }
      std::printf("%-20s %-10s  %7.0f ms  %5.2f pushes  %5.2f of one place\n", name,
                  places.name.c_str(), 1e3 * Median(places.seconds),
                  1e3 * Median(places.seconds) / flags.push_ms, Median(ratios));
      std::fflush(stdout);
    }
  }
  for (Places& places : all) {
    if (places.job->IsRight()) continue;
    std::fprintf(stderr, "staging: %s: the values are not those of all pushes\n",
                 places.name.c_str());
    return 1;
  }
  std::printf("values checked: every push of every exchange is in them once\n");
  return 0;
}

}  // namespace
}  // namespace tessera

int main(int argc, char** argv) {
  tessera::Flags flags;
  CLI::App app("Times exchanges by how many pushes a shard has room for.", "staging");
  app.add_option("--workers", flags.workers)->check(CLI::PositiveNumber);
  app.add_option("--mib", flags.mebibytes, "size of a push")->check(CLI::PositiveNumber);
  app.add_option("--push_ms", flags.push_ms, "that a push takes on its link")
      ->check(CLI::PositiveNumber);
  app.add_option("--exchanges", flags.exchanges, "for each order")->check(CLI::PositiveNumber);
  app.add_flag("--tiny", flags.tiny, "small pushes, once: a test");
  CLI11_PARSE(app, argc, argv);
  if (flags.tiny) {
    flags.workers = 3;
    flags.mebibytes = 1;
    flags.push_ms = 5;
    flags.exchanges = 1;
  }
  return tessera::Run(flags);
}
