// How fast parameters move between one worker and one server, as a share of what a plain socket
// does.
//
// Per size: a server process with one parameter of that size, and this process as the worker.
// Values are verified first. Then dense pulls and pushes are timed in turn with a plain blocking
// socket between the same two processes; medians over the repetitions. With --tls both sides show each
// other a certificate that is made for the run, and the plain socket stays plain. With --transport tcp payloads do not
// go by shared memory.
//
// With --synchronise BYTES two workers exchange one parameter of so many bytes with two servers under a barrier, each a
// process: what both wait until each has the mean of both. gloo_peer.py does the same by an all-reduce.
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <CLI/CLI.hpp>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include "absl/strings/str_cat.h"
#include "bench/exchange/plain_stream.h"
#include "bench/timing/timing.h"
#include "common/base/check.h"
#include "common/consistency/barrier.h"
#include "common/consistency/none.h"
#include "common/layout/parameters.h"
#include "common/layout/shard_map.h"
#include "common/rpc/grpc_server.h"
#include "common/rpc/security.h"
#include "common/rpc/shared_memory/shared_arena.h"
#include "common/rpc/transport.h"
#include "common/rule/add.h"
#include "server/rpc/parameter_service.h"
#include "server/shard/shard.h"
#include "server/shard/shard_thread.h"
#include "worker/rpc/parameter_client_grpc.h"

namespace tessera {
namespace {

constexpr char kDigest[] = "bench";
constexpr int64_t kColumns = 250;

// A model of one matrix of so many entries.
ModelShape OneParameter(int64_t entries) {
  ModelShape shape;
  ParameterSpec spec;
  spec.name = "layers.0.weight";
  spec.rows = entries / kColumns;
  spec.columns = kColumns;
  spec.initial_bound = 1;
  shape.parameters = {spec};
  shape.widths = {spec.columns, spec.rows};
  shape.size = spec.size();
  return shape;
}

// What all processes of a run have in common.
struct Setting {
  int channels = 1;
  bool by_memory = true;
  std::string identity;
  // Servers of a synchronisation, and its workers; 1 and 1 elsewhere.
  int servers = 1;
  int workers = 1;
  int rank = 0;  // the server's own

  std::vector<std::string> Arguments() const {
    return {"--identity",  identity,
            "--transport", by_memory ? "auto" : "tcp",
            "--servers",   absl::StrCat(servers),
            "--workers",   absl::StrCat(workers),
            "--rank",      absl::StrCat(rank)};
  }
};

// The server process: prints its two ports, and ends with its standard input.
int Serve(int64_t entries, const Setting& setting) {
  if (setting.by_memory) TESSERA_CHECK(SharedArena::Enable().ok());
  Shard::Options options;
  options.shape = OneParameter(entries);
  options.shard = ShardId(setting.rank);
  options.sharding = setting.servers;
  options.policy = setting.workers > 1 ? MakeBarrier() : MakeNone(1);
  options.rule = MakeAdd();
  ShardThread shard(std::make_unique<Shard>(std::move(options)));
  Plan plan;
  plan.generation = Generation(1);
  for (int w = 0; w < setting.workers; ++w) {
    plan.members.push_back({MemberId(w + 1), Rank(w), Exchange(1)});
  }
  shard.PostOfPlan([plan](ServedShard& served) { served.SetPlan(plan); });
  ParameterService service(&shard, kDigest, Generation(0));
  if (setting.by_memory) TESSERA_CHECK(service.ShareMemory().ok());
  auto server = GrpcServer::Start({"127.0.0.1:0", {service.service()}});
  TESSERA_CHECK(server.ok());
  std::printf("%d %d\n", (*server)->port(), ServePlainStream(shard.traits().slices.bytes()));
  std::fflush(stdout);
  char end;
  while (read(STDIN_FILENO, &end, 1) > 0) {
  }
  return 0;
}

// A folder with a certificate for this machine and its key; empty: plain text.
std::string MakeIdentity(bool tls) {
  if (!tls) return "";
  const char* const base = std::getenv("TEST_TMPDIR");
  std::string folder = absl::StrCat(base == nullptr ? "/tmp" : base, "/exchange-XXXXXX");
  TESSERA_CHECK(mkdtemp(&folder[0]) != nullptr);
  const std::string command = absl::StrCat(
      "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=exchange -addext "
      "subjectAltName=IP:127.0.0.1 -keyout ",
      folder, "/key -out ", folder, "/certificate 2>/dev/null");
  TESSERA_CHECK(std::system(command.c_str()) == 0);
  return folder;
}

// Has this process show a certificate, and believe the other one's, where --tls asks for it.
void TakeIdentity(const std::string& folder) {
  if (folder.empty()) return;
  SecurityFiles files;
  files.certificate = files.authority = folder + "/certificate";
  files.private_key = folder + "/key";
  TESSERA_CHECK(UseSecurity(files).ok());
}

void ForgetIdentity(const std::string& folder) {
  if (folder.empty()) return;
  for (const char* name : {"/certificate", "/key"}) std::remove((folder + name).c_str());
  rmdir(folder.c_str());
}

// The server is this binary again, in a process of its own.
class ServerProcess {
 public:
  ServerProcess(int64_t entries, const Setting& setting) {
    int to_child[2];
    int from_child[2];
    TESSERA_CHECK(pipe(to_child) == 0 && pipe(from_child) == 0);
    std::vector<std::string> words = setting.Arguments();
    words.insert(words.begin(), {"exchange", "--serve", absl::StrCat(entries)});
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(&word[0]);
    arguments.push_back(nullptr);
    child_ = fork();
    TESSERA_CHECK(child_ >= 0);
    if (child_ == 0) {
      dup2(to_child[0], STDIN_FILENO);
      dup2(from_child[1], STDOUT_FILENO);
      for (const int fd : {to_child[0], to_child[1], from_child[0], from_child[1]}) close(fd);
      execv("/proc/self/exe", arguments.data());
      _exit(127);
    }
    close(to_child[0]);
    close(from_child[1]);
    stdin_ = to_child[1];
    FILE* const out = fdopen(from_child[0], "r");
    TESSERA_CHECK(std::fscanf(out, "%d %d", &grpc_port, &plain_port) == 2);
    std::fclose(out);
  }
  ~ServerProcess() {
    close(stdin_);
    waitpid(child_, nullptr, 0);
  }
  int grpc_port = 0;
  int plain_port = 0;

 private:
  pid_t child_ = 0;
  int stdin_ = -1;
};

// One worker with its server.
class Pair {
 public:
  Pair(int64_t entries, const Setting& setting)
      : shape_(OneParameter(entries)),
        process_(entries, setting),
        plain_(process_.plain_port, 4 * shape_.size),
        update_(shape_.size, 0.25f),
        values_(shape_.size) {
    ParameterClientGrpc::Options options;
    options.servers = {absl::StrCat("127.0.0.1:", process_.grpc_port)};
    options.slices = {SlicesOf(shape_, ShardId(0), 1)};
    options.layout_hash = LayoutHash(shape_, 1);
    options.member = MemberId(1);
    options.job_digest = kDigest;
    options.channels_per_server = setting.channels;
    options.shares_memory = setting.by_memory;
    client_ = *ParameterClientGrpc::Create(options);
    // The first calls would go by TCP.
    while (setting.by_memory && !client_->shares_memory(0)) usleep(1000);
  }

  int64_t bytes() const { return 4 * shape_.size; }
  int grpc_port() const { return process_.grpc_port; }
  void Pull() {
    Must(client_->Pull(Exchange(exchange_), client_->dense_keys(), {absl::MakeSpan(values_)})
             .status());
  }
  void Push() {
    Must(client_
             ->Push(Exchange(++exchange_), 1, client_->dense_keys(), {absl::MakeConstSpan(update_)})
             .status());
  }
  void PushPull() {
    Must(client_
             ->PushPull({Exchange(++exchange_), 1}, client_->dense_keys(),
                        {absl::MakeConstSpan(update_)}, client_->dense_keys(),
                        {absl::MakeSpan(values_)})
             .status());
  }
  PlainStreamClient& plain() { return plain_; }

  // Pulls, pushes and pulls again, and compares every value.
  void Verify() {
    std::vector<float> want(shape_.size);
    FillInitialRows(shape_.parameters[0], 0, 0, 0, shape_.parameters[0].rows, want.data());
    Pull();
    TESSERA_CHECK(std::memcmp(want.data(), values_.data(), bytes()) == 0);
    Push();
    Pull();
    PushPull();
    for (float& x : want) x = (x + 0.25f) + 0.25f;
    TESSERA_CHECK(std::memcmp(want.data(), values_.data(), bytes()) == 0);
  }

 private:
  static void Must(const absl::Status& status) {
    if (status.ok()) return;
    std::fprintf(stderr, "exchange: %s\n", std::string(status.message()).c_str());
    std::exit(1);
  }

  const ModelShape shape_;
  ServerProcess process_;
  PlainStreamClient plain_;
  std::vector<float> update_;
  std::vector<float> values_;
  std::unique_ptr<ParameterClientGrpc> client_;
  uint64_t exchange_ = 0;
};

// User-space copies per payload byte, on both sides, while `run` moves `bytes`.
template <typename Run>
std::string Copies(PlainStreamClient& plain, int64_t bytes, Run run) {
  const uint64_t server = plain.ServerCopiedBytes();
  const uint64_t worker = CopiedBytes();
  run();
  const double worker_copies = static_cast<double>(CopiedBytes() - worker) / bytes;
  const double server_copies = static_cast<double>(plain.ServerCopiedBytes() - server) / bytes;
  char text[64];
  std::snprintf(text, sizeof(text), "worker %.3f server %.3f", worker_copies, server_copies);
  return text;
}

// Times pulls and pushes of one size, or counts what they copy where copy_counter.so is loaded.
void RunSize(int64_t bytes, int repetitions, const Setting& setting) {
  Pair pair(bytes / 4 / kColumns * kColumns, setting);
  pair.Verify();
  if (CopiedBytes() > 0) {
    const std::string pull = Copies(pair.plain(), pair.bytes(), [&] { pair.Pull(); });
    const std::string push = Copies(pair.plain(), pair.bytes(), [&] { pair.Push(); });
    std::printf("%10ld  copies per byte: pull %s, push %s\n", pair.bytes(), pull.c_str(),
                push.c_str());
    return;
  }
  std::vector<double> plain_receive, plain_send, pull, push;
  const int warm_up = std::max(3, repetitions / 10);
  for (int i = -warm_up; i < repetitions; ++i) {
    const double receive = Seconds([&] { pair.plain().Receive(); });
    const double pulled = Seconds([&] { pair.Pull(); });
    const double send = Seconds([&] { pair.plain().Send(); });
    const double pushed = Seconds([&] { pair.Push(); });
    pair.Pull();  // Waits until the push is folded, which is not on its way back.
    if (i < 0) continue;
    plain_receive.push_back(receive);
    plain_send.push_back(send);
    pull.push_back(pulled);
    push.push_back(pushed);
  }
  const auto rate = [&](const std::vector<double>& seconds) {
    return 1e-9 * pair.bytes() / Median(seconds);
  };
  std::printf("%10ld  %6.2f %6.2f   %6.2f (%.2f)   %6.2f (%.2f)\n", pair.bytes(),
              rate(plain_receive), rate(plain_send), rate(pull), rate(pull) / rate(plain_receive),
              rate(push), rate(push) / rate(plain_send));
  std::fflush(stdout);
}

// Runs `once` and prints what it takes, warm.
template <typename Once>
void PrintRoundTrip(const char* what, int repetitions, const Once& once) {
  std::vector<double> seconds;
  for (int i = -repetitions / 10; i < repetitions; ++i) {
    const double s = Seconds(once);
    if (i >= 0) seconds.push_back(s);
  }
  const double median = Median(seconds);
  std::sort(seconds.begin(), seconds.end());
  std::printf("%s: median %.0f us, 99%% within %.0f us\n", what, 1e6 * median,
              1e6 * seconds[seconds.size() * 99 / 100]);
}

// What a call and a packet take with nothing to do, between the same processes or threads of one.
void RunEmptyCalls(int repetitions, int grpc_port) {
  grpc::GenericStub stub(OpenChannel(absl::StrCat("127.0.0.1:", grpc_port)));
  grpc::CompletionQueue queue;
  PrintRoundTrip("a call of gRPC's own health service", repetitions, [&] {
    grpc::ClientContext context;
    grpc::ByteBuffer answer;
    grpc::Status status;
    const grpc::Slice nothing;
    const auto call = stub.PrepareUnaryCall(&context, "/grpc.health.v1.Health/Check",
                                            grpc::ByteBuffer(&nothing, 1), &queue);
    call->StartCall();
    call->Finish(&answer, &status, nullptr);
    void* tag = nullptr;
    bool ok = false;
    TESSERA_CHECK(queue.Next(&tag, &ok) && ok && status.ok());
  });
  int ends[2];
  TESSERA_CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends) == 0);
  std::thread other([end = ends[1]] {
    char packet[64];
    ssize_t size = 0;
    while ((size = read(end, packet, sizeof packet)) > 0) {
      TESSERA_CHECK(write(end, packet, static_cast<size_t>(size)) == size);
    }
  });
  PrintRoundTrip("a packet of 64 bytes on a Unix socket, and back", repetitions, [&] {
    char packet[64] = {};
    TESSERA_CHECK(write(ends[0], packet, sizeof packet) == sizeof packet);
    TESSERA_CHECK(read(ends[0], packet, sizeof packet) == sizeof packet);
  });
  close(ends[0]);
  other.join();
  close(ends[1]);
}

// Times a push with the pull behind it of a model so small that the round trip is all there is.
void RunRoundTrip(int repetitions, const Setting& setting) {
  Pair pair(1000, setting);
  pair.Verify();
  PrintRoundTrip("push and pull of 1000 floats", repetitions, [&] { pair.PushPull(); });
  RunEmptyCalls(repetitions, pair.grpc_port());
}

// One worker of a synchronisation, which begins when all of them are there. Returns the median of its exchanges.
double Synchronise(const ModelShape& shape, const Setting& setting,
                   const std::vector<std::unique_ptr<ServerProcess>>& servers, int rank,
                   int repetitions) {
  ParameterClientGrpc::Options options;
  for (int s = 0; s < setting.servers; ++s) {
    options.servers.push_back(absl::StrCat("127.0.0.1:", servers[s]->grpc_port));
    options.slices.push_back(SlicesOf(shape, ShardId(s), setting.servers));
  }
  options.layout_hash = LayoutHash(shape, setting.servers);
  options.member = MemberId(rank + 1);
  options.job_digest = kDigest;
  options.channels_per_server = setting.channels;
  options.shares_memory = setting.by_memory;
  const auto client = *ParameterClientGrpc::Create(options);
  for (int s = 0; s < setting.servers; ++s) {
    while (setting.by_memory && !client->shares_memory(static_cast<size_t>(s))) usleep(1000);
  }
  const std::vector<float> update(shape.size, 0.25f * static_cast<float>(rank + 1));
  std::vector<float> values(shape.size), want(shape.size);
  FillInitialRows(shape.parameters[0], 0, 0, 0, shape.parameters[0].rows, want.data());
  std::vector<double> seconds;
  const int warm_up = 5;
  for (int i = 0; i < warm_up + repetitions; ++i) {
    const double s = Seconds([&] {
      const auto done = client->PushPull({Exchange(i + 1), 1}, client->dense_keys(),
                                         {absl::MakeConstSpan(update)}, client->dense_keys(),
                                         {absl::MakeSpan(values)});
      TESSERA_CHECK(done.ok());
    });
    if (i >= warm_up) seconds.push_back(s);
    // The mean of the two updates is added, whoever pushes first.
    for (float& x : want) x += 0.375f;
    TESSERA_CHECK(i > 2 || std::memcmp(want.data(), values.data(), 4 * shape.size) == 0);
  }
  return Median(seconds);
}

void RunSynchronisation(int64_t bytes, int repetitions, Setting setting) {
  setting.servers = setting.workers = 2;
  const ModelShape shape = OneParameter(bytes / 4 / kColumns * kColumns);
  std::vector<std::unique_ptr<ServerProcess>> servers;
  for (setting.rank = 0; setting.rank < setting.servers; ++setting.rank) {
    servers.push_back(std::make_unique<ServerProcess>(shape.size, setting));
  }
  std::vector<pid_t> workers;
  // Each worker is a process, forked before this one uses gRPC.
  for (int w = 0; w < setting.workers; ++w) {
    const pid_t child = fork();
    TESSERA_CHECK(child >= 0);
    if (child > 0) {
      workers.push_back(child);
      continue;
    }
    if (setting.by_memory) TESSERA_CHECK(SharedArena::Enable().ok());
    const double median = Synchronise(shape, setting, servers, w, repetitions);
    std::printf("worker %d: %.1f MB with two workers and two servers: median %.1f ms\n", w,
                4e-6 * static_cast<double>(shape.size), 1e3 * median);
    std::fflush(stdout);
    _exit(0);
  }
  for (const pid_t worker : workers) {
    int status = 0;
    waitpid(worker, &status, 0);
    TESSERA_CHECK(status == 0);
  }
  // The last one first: a server ends when its pipe is closed, of which later servers have inherited the end.
  while (!servers.empty()) servers.pop_back();
}

int Main(int argc, char** argv) {
  ConfigureAllocator();
  CLI::App app("Times pulls and pushes between one worker and one server process.");
  std::vector<int64_t> sizes = {64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20};
  bool tiny = false, tls = false;
  Setting setting;
  std::string transport = "auto";
  int64_t synchronise = 0;
  double gigabytes = 0.7;
  int64_t serve = -1;
  app.add_option("--sizes", sizes, "bytes of the parameter");
  app.add_option("--channels", setting.channels, "connections per server, 1 or 2");
  app.add_option("--transport", transport, "auto or tcp");
  app.add_option("--synchronise", synchronise, "bytes that two workers exchange with two servers");
  app.add_option("--gigabytes", gigabytes, "moved per size and direction");
  app.add_flag("--tiny", tiny, "small sizes, few repetitions: a test");
  app.add_flag("--tls", tls, "TLS, each side with a certificate");
  app.add_option("--serve", serve, "")->group("");
  app.add_option("--identity", setting.identity, "")->group("");
  app.add_option("--servers", setting.servers, "")->group("");
  app.add_option("--workers", setting.workers, "")->group("");
  app.add_option("--rank", setting.rank, "")->group("");
  CLI11_PARSE(app, argc, argv);
  setting.by_memory = transport == "auto";
  if (serve < 0) setting.identity = MakeIdentity(tls);
  TakeIdentity(setting.identity);
  if (serve >= 0) return Serve(serve, setting);
  if (synchronise > 0) {
    RunSynchronisation(synchronise, tiny ? 3 : 30, setting);
    ForgetIdentity(setting.identity);
    return 0;
  }
  if (setting.by_memory) TESSERA_CHECK(SharedArena::Enable().ok());
  if (tiny) {
    sizes = {64 << 10, 1 << 20};
    gigabytes = 0.01;
  }
  std::printf("            plain GB/s      tessera GB/s (share of plain)\n");
  std::printf("     bytes     in    out     pull            push\n");
  for (const int64_t size : sizes) {
    RunSize(size, std::max(9, std::min(400, static_cast<int>(1e9 * gigabytes / size))), setting);
  }
  RunRoundTrip(tiny ? 100 : 3000, setting);
  ForgetIdentity(setting.identity);
  return 0;
}

}  // namespace
}  // namespace tessera

int main(int argc, char** argv) { return tessera::Main(argc, argv); }
