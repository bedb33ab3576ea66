// An exchange through the client library against the same exchange of a worker's train loop, which has no caller.
//
//   bazel-bin/bench/client/client [--sizes 16777216 268435456] [--seconds 5] [--tiny]
//
// Per size: two servers, each with one worker in this process. One worker has a learner without arithmetic, the other
// the library's, which a C program answers. Gradients are pushed and values pulled, in turns; medians. The last row has
// the bytes of the first size in a thousand tensors, as a transformer's parameters are.
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "bench/timing/timing.h"
#include "common/base/check.h"
#include "common/base/log.h"
#include "common/config/job_reader.h"
#include "common/layout/shard_map.h"
#include "common/rpc/transport.h"
#include "worker/client/tessera_client.h"
#include "worker/own_model.h"
#include "worker/worker_process.h"

extern char** environ;

namespace tessera {
namespace {

constexpr int kInputs = 64;  // of the built-in digits

struct Flags {
  std::vector<int64_t> sizes = {16 << 20, 256 << 20};
  double seconds = 5;
  bool tiny = false;
  std::string server = "bazel-bin/server/tessera-server";
  std::string data = "deploy/data/optdigits";
};

std::string Folder() {
  static const std::string* const folder = [] {
    const char* const base = std::getenv("TEST_TMPDIR");
    auto* const name =
        new std::string(absl::StrCat(base == nullptr ? "/tmp" : base, "/client-XXXXXX"));
    TESSERA_CHECK(mkdtemp(&(*name)[0]) != nullptr);
    return name;
  }();
  return *folder;
}

// A job whose parameters are so many bytes in so many tensors.
std::string WriteJob(const Flags& flags, const std::string& name, int64_t bytes, int tensors) {
  const std::string path = absl::StrCat(Folder(), "/", name, ".yaml");
  char here[4096];
  TESSERA_CHECK(getcwd(here, sizeof(here)) != nullptr);
  std::ofstream file(path);
  file << "name: client-bench\nseed: 1\ndata:\n  format: idx\n  directory: " << here << "/"
       << flags.data
       << "\n  train: {features: train-images-idx3-ubyte.gz, labels: train-labels-idx1-ubyte.gz}\n"
          "  test: {features: test-images-idx3-ubyte.gz, labels: test-labels-idx1-ubyte.gz}\n"
          "model:\n  input: [64]\n  layers:\n";
  if (tensors == 1) {
    file << "    - linear: {units: " << bytes / 4 / kInputs << ", bias: false}\n";
  } else {
    file << "    - repeat: {times: " << tensors << ", layers: [linear: {units: " << kInputs
         << ", bias: false}]}\n";
  }
  file << "train: {batch_size: 8, steps: 1000000000, evaluate_every: 0, optimizer: {sgd: "
          "{learning_rate: 0.1}}}\n"
          "method: {data_parallel: {}}\n"
          "cluster: {servers: 1, workers: 1, threads: 1}\n";
  return path;
}

class Server {
 public:
  Server(const Flags& flags, const std::string& job) {
    const std::string file = job + ".address";
    std::remove(file.c_str());
    const std::vector<std::string> arguments = {
        flags.server,  "--job",          job,  "--rank",      "0",      "--listen",
        "127.0.0.1:0", "--address-file", file, "--log-level", "warning"};
    std::vector<char*> argv;
    for (const std::string& one : arguments) argv.push_back(const_cast<char*>(one.c_str()));
    argv.push_back(nullptr);
    if (posix_spawn(&process_, flags.server.c_str(), nullptr, nullptr, argv.data(), environ) != 0) {
      std::fprintf(stderr, "client: cannot start %s; bazel build //server:tessera-server\n",
                   flags.server.c_str());
      std::exit(1);
    }
    for (int i = 0; i < 6000 && address.empty(); ++i) {
      std::ifstream written(file);
      std::getline(written, address);
      absl::SleepFor(absl::Milliseconds(10));
    }
    TESSERA_CHECK(!address.empty());
  }
  ~Server() {
    kill(process_, SIGKILL);
    waitpid(process_, nullptr, 0);
  }
  std::string address;

 private:
  pid_t process_ = 0;
};

// Whose turn it is to exchange: the candidates take turns, so that a slow moment of the machine hits all.
class Baton {
 public:
  // Waits for one's turn; false: it is over.
  bool Take(int who) {
    absl::MutexLock lock(&mutex_);
    const auto is_mine = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return over_ || turn_ == who;
    };
    mutex_.Await(absl::Condition(&is_mine));
    return !over_;
  }
  void Pass(int to) {
    absl::MutexLock lock(&mutex_);
    turn_ = to;
  }
  void End() {
    absl::MutexLock lock(&mutex_);
    over_ = true;
  }

 private:
  absl::Mutex mutex_;
  int turn_ ABSL_GUARDED_BY(mutex_) = 0;
  bool over_ ABSL_GUARDED_BY(mutex_) = false;
};

// Learns nothing, and takes the time from a formed update to adopted values.
class IdleLearner final : public Learner {
 public:
  IdleLearner(const ModelShape& shape, int servers, Baton* baton, std::vector<double>* seconds)
      : keys_(DenseKeys(shape, servers)), baton_(*baton), seconds_(*seconds) {
    for (const ParameterSpec& spec : shape.parameters) {
      const auto size = static_cast<size_t>(spec.size());
      values_.push_back(absl::MakeSpan(arrays_.emplace_back(size).data(), size));
      update_.push_back(absl::MakeConstSpan(arrays_.emplace_back(size, 0.25f).data(), size));
    }
  }
  const ParameterArrays& values() const override { return values_; }
  const KeySet& value_keys() const override { return keys_; }
  const ConstParameterArrays& update() const override { return update_; }
  const KeySet& update_keys() const override { return keys_; }
  absl::StatusOr<Losses> Train(const Dataset&, absl::Span<const uint32_t>,
                               const TrainPoint&) override {
    if (!baton_.Take(0)) return absl::CancelledError("over");
    begin_ = SecondsNow();
    return Losses{1.0};
  }
  absl::Status FormUpdate() override { return absl::OkStatus(); }
  absl::Status AdoptValues() override {
    if (begin_ > 0) {
      seconds_.push_back(SecondsNow() - begin_);
      baton_.Pass(1);
    }
    return absl::OkStatus();
  }
  absl::Status Recut(const SubnetPlace&) override { return absl::OkStatus(); }
  absl::Status BeginTail() override { return absl::OkStatus(); }
  bool pulls_apart() const override { return true; }
  absl::StatusOr<ExchangeResult> BeginEvaluation(ParameterClient* servers, Exchange after,
                                                 IdleNotice word) override {
    return servers->Read(after, word, values_);
  }
  absl::StatusOr<bool> EndEvaluation() override { return false; }
  absl::StatusOr<std::vector<float>> Calibrate(const Dataset&,
                                               absl::Span<const uint32_t>) override {
    return std::vector<float>();
  }
  absl::StatusOr<Scores> Score(const Dataset&, absl::Span<const uint32_t>,
                               absl::Span<const float>) override {
    return Scores();
  }

 private:
  static double SecondsNow() { return absl::ToDoubleSeconds(absl::Now() - absl::UnixEpoch()); }

  std::vector<std::vector<float>> arrays_;
  ParameterArrays values_;
  ConstParameterArrays update_;
  const KeySet keys_;
  Baton& baton_;
  std::vector<double>& seconds_;
  double begin_ = 0;
};

class IdleModel final : public OwnModel {
 public:
  explicit IdleModel(Baton* baton) : baton_(*baton) {}
  std::string description() const override { return "a bench"; }
  void BeginMembership() override {}
  void WaitsFor(absl::string_view) override {}
  absl::StatusOr<std::unique_ptr<Learner>> MakeLearner(const PreparedWorker& worker,
                                                       const v1::JoinReply&) override {
    return std::make_unique<IdleLearner>(worker.shape, 1, &baton_, &seconds);
  }
  void OnStalled(const absl::Status&) override {}
  void Cancel(absl::Status) override {}

  std::vector<double> seconds;

 private:
  Baton& baton_;
};

void Must(tessera_status status) {
  if (status == TESSERA_OK) return;
  std::fprintf(stderr, "client: %s\n", tessera_last_message());
  std::exit(1);
}

// The C program's part: `seconds` of each exchange.
void RunLibrary(const std::string& path, const std::string& coordinator, Baton* baton,
                std::vector<double>* seconds) {
  tessera_options options = {};
  options.struct_size = sizeof(options);
  options.job_file = path.c_str();
  options.coordinator = coordinator.c_str();
  options.rank = -1;
  tessera_job* job = nullptr;
  Must(tessera_join(&options, &job));
  tessera_info info = {};
  info.struct_size = sizeof(info);
  Must(tessera_get_info(job, &info));
  std::vector<std::vector<float>> arrays;
  std::vector<float*> values;
  std::vector<const float*> gradients;
  for (int64_t i = 0; i < info.tensor_count; ++i) {
    tessera_tensor tensor = {};
    tensor.struct_size = sizeof(tensor);
    Must(tessera_tensor_at(job, i, &tensor));
    const auto size = static_cast<size_t>(tensor.size);
    values.push_back(arrays.emplace_back(size).data());
    gradients.push_back(arrays.emplace_back(size, 0.25f).data());
  }
  tessera_verdict verdict;
  Must(tessera_pull(job, values.data(), values.size(), &verdict));
  while (baton->Take(1)) {
    seconds->push_back(Seconds([&] {
      Must(tessera_step(job, 8, 1.0, &verdict));
      Must(tessera_exchange(job, gradients.data(), gradients.size(), values.data(), values.size(),
                            &verdict));
    }));
    baton->Pass(0);
  }
  Must(tessera_close(job));
}

void Run(const Flags& flags, int64_t bytes, int tensors) {
  const std::string loop_job = WriteJob(flags, "loop", bytes, tensors);
  const std::string library_job = WriteJob(flags, "library", bytes, tensors);
  const Server loop_server(flags, loop_job), library_server(flags, library_job);
  Baton baton;
  IdleModel model(&baton);
  WorkerOptions options;
  options.job_path = loop_job;
  options.coordinator = loop_server.address;
  options.own_model = &model;
  WorkerProcess process(&options);
  const JobReading reading = ReadJobFile(loop_job, {}, {});
  TESSERA_CHECK(reading.ok());
  const absl::Status prepared = process.Prepare(reading.job);
  if (!prepared.ok()) {
    std::fprintf(stderr, "client: %s\n", std::string(prepared.message()).c_str());
    std::exit(1);
  }
  std::vector<double> through;
  std::thread loop([&] { process.Train().IgnoreError(); });
  std::thread library([&] { RunLibrary(library_job, library_server.address, &baton, &through); });
  absl::SleepFor(absl::Seconds(flags.seconds));
  baton.End();
  process.Leave();
  loop.join();
  library.join();
  const auto rest = [](std::vector<double> seconds) {  // the first ones warm up
    seconds.erase(seconds.begin(), seconds.begin() + static_cast<ptrdiff_t>(seconds.size() / 10));
    return Median(seconds);
  };
  TESSERA_CHECK(model.seconds.size() > 2 && through.size() > 2);
  const double direct = rest(model.seconds), called = rest(through);
  std::printf("%10ld %6d   %8.2f GB/s   %8.2f GB/s (%.2f)   %zu exchanges\n", bytes, tensors,
              2e-9 * bytes / direct, 2e-9 * bytes / called, direct / called, through.size());
  std::fflush(stdout);
}

int Main(int argc, char** argv) {
  ConfigureAllocator();
  setenv("GRPC_VERBOSITY", "NONE", 0);
  Flags flags;
  CLI::App app("Times exchanges through the client library.");
  app.add_option("--sizes", flags.sizes, "bytes of the model");
  app.add_option("--seconds", flags.seconds, "for each size");
  app.add_flag("--tiny", flags.tiny, "small, for a second: a test");
  app.add_option("--server", flags.server, "tessera-server");
  app.add_option("--data", flags.data, "the built-in digits");
  CLI11_PARSE(app, argc, argv);
  if (flags.tiny) {
    flags.sizes = {1 << 20};
    flags.seconds = 1;
  }
  SetLogLevel(LogLevel::kError);
  std::printf("     bytes tensors   a train loop     the library (share)\n");
  for (const int64_t size : flags.sizes) Run(flags, size, 1);
  const int tensors = flags.tiny ? 50 : static_cast<int>(flags.sizes[0] / 4 / kInputs / kInputs);
  Run(flags, int64_t{4} * kInputs * kInputs * tensors, tensors);
  return 0;
}

}  // namespace
}  // namespace tessera

int main(int argc, char** argv) { return tessera::Main(argc, argv); }
