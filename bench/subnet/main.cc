// What the cut costs: a subnet's rows and columns out of a square matrix and back.
//
//   gather    alone, one thread (gather.cc)
//   exchange  fetch and return of a half-width subnet between one worker and one server process over
//             loopback, against dense pulls and pushes of as many bytes, and of the whole matrix
//
// Values are verified first; medians over repetitions, in turn.
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "absl/strings/str_cat.h"
#include "bench/subnet/matrix.h"
#include "bench/timing/timing.h"
#include "common/base/check.h"
#include "common/consistency/barrier.h"
#include "common/consistency/none.h"
#include "common/keyset/key_set.h"
#include "common/layout/shard_map.h"
#include "common/rpc/grpc_server.h"
#include "common/rpc/transport.h"
#include "common/rule/add.h"
#include "server/rpc/parameter_service.h"
#include "server/shard/shard_thread.h"
#include "worker/rpc/parameter_client_grpc.h"

namespace tessera {
namespace {

constexpr char kDigest[] = "bench";
constexpr uint64_t kSeed = 1;

// The server process: prints its port, and ends with its standard input. Where it trains subnets, a
// departed member is the second site of every round.
int Serve(int64_t width, bool subnets) {
  Shard::Options options;
  options.shape = SquareMatrix(width);
  options.seed = kSeed;
  options.policy = subnets ? MakeBarrier() : MakeNone(1);
  options.rule = MakeAdd();
  options.kind = subnets ? v1::VALUE : v1::GRADIENT;
  if (subnets) options.groups = BothCut(width);
  ShardThread shard(std::make_unique<Shard>(std::move(options)));
  Plan plan;
  plan.generation = Generation(1);
  plan.members = {{MemberId(1), Rank(0), Exchange(1)}};
  plan.departed = {{MemberId(2), Rank(1), Exchange(1), Exchange(0)}};
  shard.PostOfPlan([plan](ServedShard& served) { served.SetPlan(plan); });
  ParameterService service(&shard, kDigest, Generation(0));
  auto server = GrpcServer::Start({"127.0.0.1:0", {service.service()}});
  TESSERA_CHECK(server.ok());
  std::printf("%d\n", (*server)->port());
  std::fflush(stdout);
  char end;
  while (read(STDIN_FILENO, &end, 1) > 0) {
  }
  return 0;
}

// The server is this binary again, in a process of its own.
class ServerProcess {
 public:
  ServerProcess(int64_t width, bool subnets) {
    int to_child[2];
    int from_child[2];
    TESSERA_CHECK(pipe(to_child) == 0 && pipe(from_child) == 0);
    const std::string text = absl::StrCat(width);
    child_ = fork();
    TESSERA_CHECK(child_ >= 0);
    if (child_ == 0) {
      dup2(to_child[0], STDIN_FILENO);
      dup2(from_child[1], STDOUT_FILENO);
      for (const int fd : {to_child[0], to_child[1], from_child[0], from_child[1]}) close(fd);
      execl("/proc/self/exe", "subnet", subnets ? "--serve-subnets" : "--serve", text.c_str(),
            nullptr);
      _exit(127);
    }
    close(to_child[0]);
    close(from_child[1]);
    stdin_ = to_child[1];
    FILE* const out = fdopen(from_child[0], "r");
    TESSERA_CHECK(std::fscanf(out, "%d", &port) == 1);
    std::fclose(out);
  }
  ~ServerProcess() {
    close(stdin_);
    waitpid(child_, nullptr, 0);
  }
  int port = 0;

 private:
  pid_t child_ = 0;
  int stdin_ = -1;
};

void Must(const absl::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "subnet: %s\n", std::string(status.message()).c_str());
  std::exit(1);
}

// One worker with its server: all entries, or half the rows and columns in each round.
class Pair {
 public:
  Pair(int64_t width, bool subnets)
      : shape_(SquareMatrix(width)),
        subnets_(subnets),
        process_(width, subnets),
        keys_(KeysOf(1)),
        next_keys_(KeysOf(2)) {
    const int64_t size = subnets ? SizeOf(keys_) : shape_.size;
    update_.assign(size, 0.25f);
    values_.assign(size, 0);
    ParameterClientGrpc::Options options;
    options.servers = {absl::StrCat("127.0.0.1:", process_.port)};
    options.slices = {SlicesOf(shape_, ShardId(0), 1)};
    options.layout_hash = LayoutHash(shape_, 1);
    options.member = MemberId(1);
    options.job_digest = kDigest;
    options.kind = subnets ? v1::VALUE : v1::GRADIENT;
    client_ = *ParameterClientGrpc::Create(options);
  }

  int64_t bytes() const { return static_cast<int64_t>(values_.size() * sizeof(float)); }
  void Pull() {
    const auto result = client_->Pull(Exchange(exchange_), keys_, {absl::MakeSpan(values_)});
    Must(result.status());
    TESSERA_CHECK(!result->recut.has_value());
  }
  // Pushes, without the pull that the next push needs.
  void Push() {
    Must(client_->Push(Exchange(exchange_ + 1), 1, keys_, {absl::MakeConstSpan(update_)}).status());
  }
  void PushPull() {
    OutgoingPush push;
    push.exchange = Exchange(exchange_ + 1);
    push.examples = 1;
    const auto result = client_->PushPull(push, keys_, {absl::MakeConstSpan(update_)}, next_keys_,
                                          {absl::MakeSpan(values_)});
    Must(result.status());
    TESSERA_CHECK(!result->recut.has_value());
  }
  // Goes on to the next exchange after either; this is not timed.
  void Advance() {
    ++exchange_;
    if (!subnets_) return;
    keys_ = std::move(next_keys_);
    next_keys_ = KeysOf(exchange_ + 2);
  }

  // Three rounds, beside a whole matrix cut by hand.
  void Verify() {
    const int64_t width = shape_.parameters[0].columns;
    std::vector<float> want(shape_.size);
    FillInitialRows(shape_.parameters[0], 0, kSeed, 0, width, want.data());
    for (int i = 0; i < 3; ++i) {
      Pull();
      const float* got = values_.data();
      float* update = update_.data();
      ForEachEntry([&](int64_t entry) {
        TESSERA_CHECK(*got == want[entry]);
        *update++ = subnets_ ? *got + 1 : 1;
        want[entry] += 1;
        ++got;
      });
      TESSERA_CHECK(got == values_.data() + values_.size());
      Push();
      Advance();
    }
  }

 private:
  KeySet KeysOf(uint64_t round) const {
    if (!subnets_) return DenseKeys(shape_, 1);
    const int64_t width = shape_.parameters[0].columns;
    const SubnetPlace place{kSeed, round, 0, {1, 1}};
    return SubnetKeys(shape_, SubnetOf(shape_, BothCut(width), place), place, 1);
  }
  static int64_t SizeOf(const KeySet& keys) { return keys.slices[0].size; }

  template <typename Do>
  void ForEachEntry(Do apply) const {
    const int64_t width = shape_.parameters[0].columns;
    if (!subnets_) {
      for (int64_t i = 0; i < shape_.size; ++i) apply(i);
      return;
    }
    const std::vector<int32_t> columns = PartOf(*keys_.subnet, 1, width);
    for (const int32_t row : PartOf(*keys_.subnet, 2, width)) {
      for (const int32_t column : columns) apply(row * width + column);
    }
  }

  const ModelShape shape_;
  const bool subnets_;
  ServerProcess process_;
  KeySet keys_;
  KeySet next_keys_;
  std::vector<float> update_;
  std::vector<float> values_;
  std::unique_ptr<ParameterClientGrpc> client_;
  uint64_t exchange_ = 0;
};

// GB/s of one pair, by repetition.
struct Rates {
  std::vector<double> pull, push, both;

  void Take(Pair* pair, bool counts) {
    const double gigabytes = 1e-9 * static_cast<double>(pair->bytes());
    pair->Pull();  // Waits for the last push to be folded.
    const double pulled = Seconds([&] { pair->Pull(); });
    const double pushed = Seconds([&] { pair->Push(); });
    pair->Advance();
    pair->Pull();
    const double exchanged = Seconds([&] { pair->PushPull(); });
    pair->Advance();
    if (!counts) return;
    pull.push_back(gigabytes / pulled);
    push.push_back(gigabytes / pushed);
    both.push_back(2 * gigabytes / exchanged);
  }
  void Print(const char* name, int64_t bytes, const Rates& dense) const {
    std::printf("%-18s %9ld   %6.2f (%.2f)   %6.2f (%.2f)   %6.2f (%.2f)\n", name, bytes,
                Median(pull), Median(pull) / Median(dense.pull), Median(push),
                Median(push) / Median(dense.push), Median(both), Median(both) / Median(dense.both));
  }
};

// Times fetching and returning a subnet beside dense pulls and pushes of as many bytes.
void RunExchange(int64_t width, int repetitions) {
  Pair subnet(width, true);
  Pair same(width / 2, false);
  Pair whole(width, false);
  for (Pair* pair : {&subnet, &same, &whole}) pair->Verify();
  Rates of_subnet, of_same, of_whole;
  for (int i = -3; i < repetitions; ++i) {
    of_same.Take(&same, i >= 0);
    of_subnet.Take(&subnet, i >= 0);
    of_whole.Take(&whole, i >= 0);
  }
  of_same.Print("dense, same bytes", same.bytes(), of_same);
  of_whole.Print("dense, the matrix", whole.bytes(), of_same);
  of_subnet.Print("half-width subnet", subnet.bytes(), of_same);
}

int Main(int argc, char** argv) {
  ConfigureAllocator();
  CLI::App app("Times subnets of a square matrix: gather alone, and fetch and return.");
  int64_t width = 4096, serve = -1, serve_subnets = -1;
  int repetitions = 60;
  bool tiny = false;
  app.add_option("--width", width, "of the matrix");
  app.add_option("--repetitions", repetitions, "of everything");
  app.add_flag("--tiny", tiny, "small sizes, few repetitions: a test");
  app.add_option("--serve", serve, "")->group("");
  app.add_option("--serve-subnets", serve_subnets, "")->group("");
  CLI11_PARSE(app, argc, argv);
  if (serve >= 0) return Serve(serve, false);
  if (serve_subnets >= 0) return Serve(serve_subnets, true);
  if (tiny) {
    width = 256;
    repetitions = 5;
  }
  std::printf("rates in GB/s of payload\n\n        memcpy    lines   gather   scatter\n");
  for (const int sites : {2, 4, 8}) RunGather(width, sites, repetitions);
  std::printf(
      "\n                       bytes   pull            push            both (share of dense, "
      "same bytes)\n");
  RunExchange(width, repetitions);
  return 0;
}

}  // namespace
}  // namespace tessera

int main(int argc, char** argv) { return tessera::Main(argc, argv); }
