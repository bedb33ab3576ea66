// What a server's memory does under load: one server process with plain SGD and a barrier, two
// worker processes that push and pull the whole model as fast as they can.
//
// Prints the server's peak against the promise (5 x the parameters + 64 MiB), and its resident
// memory, block allocations and large C++ allocations over the exchanges: after the first ones all
// three must stand still.
#include <malloc.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "common/base/check.h"
#include "common/consistency/barrier.h"
#include "common/layout/parameters.h"
#include "common/layout/shard_map.h"
#include "common/metrics/process_memory.h"
#include "common/rpc/grpc_server.h"
#include "common/rpc/transport.h"
#include "common/rule/sgd.h"
#include "server/rpc/parameter_service.h"
#include "server/shard/shard.h"
#include "server/shard/shard_thread.h"
#include "worker/rpc/parameter_client_grpc.h"

namespace {

// Allocations of our own code (gRPC takes its buffers from malloc) that are too large to be
// bookkeeping: the list of a push's received pieces takes 16 bytes for each 16 KiB.
constexpr size_t kLargeBytes = 1 << 20;
std::atomic<int64_t> large_allocations{0};

}  // namespace

void* operator new(size_t size) {
  if (size >= kLargeBytes) large_allocations.fetch_add(1, std::memory_order_relaxed);
  if (void* const p = std::malloc(size)) return p;
  std::abort();
}
// Inlined into a caller it looks to the compiler like free of what operator new gave.
__attribute__((noinline)) void operator delete(void* p) noexcept { std::free(p); }
__attribute__((noinline)) void operator delete(void* p, size_t) noexcept { std::free(p); }

namespace tessera {
namespace {

constexpr char kDigest[] = "bench";
constexpr int kWorkers = 2;
constexpr int64_t kColumns = 1024;
constexpr int64_t kAllowanceBytes = int64_t{64} << 20;

// A model of one matrix of so many bytes.
ModelShape OneParameter(int64_t bytes) {
  ModelShape shape;
  ParameterSpec spec;
  spec.name = "layers.0.weight";
  spec.columns = kColumns;
  spec.rows = bytes / 4 / kColumns;
  spec.initial_bound = 1;
  shape.parameters = {spec};
  shape.widths = {spec.columns, spec.rows};
  shape.size = spec.size();
  return shape;
}

// What the server tells of itself.
struct Footprint {
  int64_t peak_bytes = 0;
  int64_t resident_bytes = 0;
  int64_t blocks = 0;
  int64_t large = 0;
};

// The server process: answers every byte on `in` with a Footprint, and ends with `in`.
[[noreturn]] void Serve(int64_t bytes, int in, int out) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  ConfigureAllocator();
  Shard::Options options;
  options.shape = OneParameter(bytes);
  options.policy = MakeBarrier();
  options.rule = MakeSgd({/*learning_rate=*/0.01f, 0, 0});
  ShardThread shard(std::make_unique<Shard>(std::move(options)));
  Plan plan;
  plan.generation = Generation(1);
  for (int k = 0; k < kWorkers; ++k) {
    plan.members.push_back({MemberId(k + 1), Rank(k), Exchange(1)});
  }
  shard.PostOfPlan([plan](ServedShard& served) { served.SetPlan(plan); });
  ParameterService service(&shard, kDigest, Generation(0));
  auto server = GrpcServer::Start({"127.0.0.1:0", {service.service()}});
  TESSERA_CHECK(server.ok());
  const int port = (*server)->port();
  TESSERA_CHECK(write(out, &port, sizeof(port)) == sizeof(port));
  char asked;
  while (read(in, &asked, 1) == 1) {
    Footprint footprint;
    absl::Notification inspected;
    shard.Inspect(false, [&](ShardThread::View view) {
      footprint.blocks = view.counters.blocks_allocated;
      inspected.Notify();
    });
    inspected.WaitForNotification();
    const ProcessMemory memory = ReadProcessMemory();
    footprint.peak_bytes = memory.peak_rss_bytes;
    footprint.resident_bytes = memory.rss_bytes;
    footprint.large = large_allocations.load();
    TESSERA_CHECK(write(out, &footprint, sizeof(footprint)) == sizeof(footprint));
  }
  (*server)->Shutdown(absl::ZeroDuration());
  _exit(0);
}

// A worker process: exchanges without end, one byte on `out` for each.
[[noreturn]] void Work(int64_t bytes, int rank, int port, int exchanges, int out) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  ConfigureAllocator();
  const ModelShape shape = OneParameter(bytes);
  ParameterClientGrpc::Options options;
  options.servers = {absl::StrCat("127.0.0.1:", port)};
  options.slices = {SlicesOf(shape, ShardId(0), 1)};
  options.layout_hash = LayoutHash(shape, 1);
  options.member = MemberId(rank + 1);
  options.job_digest = kDigest;
  auto client = ParameterClientGrpc::Create(options);
  TESSERA_CHECK(client.ok());
  const KeySet& keys = (*client)->dense_keys();
  std::vector<float> update(shape.size, 0.5f), values(shape.size);
  TESSERA_CHECK((*client)->Pull(Exchange(0), keys, {absl::MakeSpan(values)}).ok());
  for (int e = 1; e <= exchanges; ++e) {
    const auto times = (*client)->PushPull({Exchange(e), 1}, keys, {absl::MakeConstSpan(update)},
                                           keys, {absl::MakeSpan(values)});
    if (!times.ok()) {
      std::fprintf(stderr, "memory: %s\n", std::string(times.status().message()).c_str());
      _exit(1);
    }
    const char done = 1;
    TESSERA_CHECK(write(out, &done, 1) == 1);
  }
  _exit(0);
}

// Runs a server and two workers in processes of their own, so that the server's peak is its own.
int Run(int64_t bytes, int exchanges) {
  int to_server[2], from_server[2], progress[2];
  TESSERA_CHECK(pipe(to_server) == 0 && pipe(from_server) == 0 && pipe(progress) == 0);
  const pid_t server = fork();
  if (server == 0) {
    close(to_server[1]);
    close(progress[1]);
    Serve(bytes, to_server[0], from_server[1]);
  }
  int port = 0;
  TESSERA_CHECK(read(from_server[0], &port, sizeof(port)) == sizeof(port));
  for (int rank = 0; rank < kWorkers; ++rank) {
    if (fork() == 0) {
      close(to_server[1]);
      Work(bytes, rank, port, exchanges, progress[1]);
    }
  }
  close(progress[1]);
  const double parameters = static_cast<double>(OneParameter(bytes).size) * 4;
  std::printf("%10s %14s %16s %8s %8s %10s\n", "exchanges", "peak / n", "resident / n", "blocks",
              "large", "GB/s");
  Footprint warm, last;
  auto since = std::chrono::steady_clock::now();
  int64_t done = 0, reported = 0;
  char byte;
  while (read(progress[0], &byte, 1) == 1) {
    ++done;
    const int64_t step = std::max<int64_t>(1, static_cast<int64_t>(exchanges) * kWorkers / 10);
    if (done % step != 0) continue;
    TESSERA_CHECK(write(to_server[1], &byte, 1) == 1);
    TESSERA_CHECK(read(from_server[0], &last, sizeof(last)) == sizeof(last));
    const auto now = std::chrono::steady_clock::now();
    const double seconds = std::chrono::duration<double>(now - since).count();
    std::printf("%10ld %14.2f %16.2f %8ld %8ld %10.2f\n", static_cast<long>(done / kWorkers),
                last.peak_bytes / parameters, last.resident_bytes / parameters,
                static_cast<long>(last.blocks), static_cast<long>(last.large),
                2 * parameters * (done - reported) / seconds / 1e9);
    std::fflush(stdout);
    if (warm.peak_bytes == 0) warm = last;
    since = now;
    reported = done;
  }
  close(to_server[1]);
  bool ok = done == static_cast<int64_t>(exchanges) * kWorkers;
  for (int status = 0; wait(&status) > 0;) ok = ok && WIFEXITED(status) && WEXITSTATUS(status) == 0;
  const double promised = 5 * parameters + kAllowanceBytes;
  std::printf("peak %.1f MiB, promised %.1f MiB (5 n + 64 MiB, n = %.1f MiB): %s\n",
              last.peak_bytes / 1048576.0, promised / 1048576.0, parameters / 1048576.0,
              last.peak_bytes <= promised ? "kept" : "BROKEN");
  const bool flat = last.large == warm.large && last.blocks == warm.blocks;
  std::printf("after warm-up: %ld blocks and %ld large allocations more: %s\n",
              static_cast<long>(last.blocks - warm.blocks),
              static_cast<long>(last.large - warm.large), flat ? "flat" : "GROWING");
  return ok && flat && last.peak_bytes <= promised ? 0 : 1;
}

}  // namespace
}  // namespace tessera

int main(int argc, char** argv) {
  CLI::App app("A server's memory under load.", "memory");
  int64_t mebibytes = 256;
  int exchanges = 1000;
  bool tiny = false;
  app.add_option("--mib", mebibytes, "size of the model");
  app.add_option("--exchanges", exchanges, "per worker");
  app.add_flag("--tiny", tiny, "a small model and few exchanges, as a test");
  CLI11_PARSE(app, argc, argv);
  if (tiny) {
    mebibytes = 16;
    exchanges = 60;
  }
  return tessera::Run(mebibytes << 20, exchanges);
}
