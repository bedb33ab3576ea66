// The C interface, used rightly and wrongly, against a real server.
#include "worker/client/tessera_client.h"

#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

extern char** environ;

namespace {

constexpr char kServer[] = "server/tessera-server";

std::string Folder() {
  const char* const folder = std::getenv("TEST_TMPDIR");
  return folder != nullptr ? folder : "/tmp";
}

// One server of a small job, until the object dies.
class Server {
 public:
  // `train`, `method` and `layers` are parts of the job file.
  explicit Server(const std::string& train = "  steps: 6\n",
                  const std::string& method = "data_parallel: {}",
                  const std::string& layers = "linear: {units: 10}") {
    static std::atomic<int> number{0};
    const std::string name = absl::StrCat(Folder(), "/job", getpid(), "_", ++number);
    job_ = name + ".yaml";
    address_file_ = name + ".address";
    std::ofstream(job_)
        << "name: client\nseed: 1\n"
           "data:\n"
           "  format: idx\n"
        << "  directory: " << Here() << "/deploy/data/optdigits\n"
        << "  train: {features: train-images-idx3-ubyte.gz, labels: train-labels-idx1-ubyte.gz}\n"
           "  test: {features: test-images-idx3-ubyte.gz, labels: test-labels-idx1-ubyte.gz}\n"
           "model: {input: [64], layers: ["
        << layers
        << "]}\n"
           "train:\n  batch_size: 32\n  optimizer: {sgd: {learning_rate: 0.1}}\n"
        << train << "method: {" << method << "}\n"
        << "cluster: {servers: 1, workers: 1, lease_timeout: 5s}\n";
    Start();
  }
  ~Server() { Kill(); }

  void Start() {
    std::remove(address_file_.c_str());
    const std::vector<std::string> arguments = {
        kServer,       "--job",          job_,          "--rank",      "0",      "--listen",
        "127.0.0.1:0", "--address-file", address_file_, "--log-level", "warning"};
    std::vector<char*> argv;
    for (const std::string& argument : arguments) {
      argv.push_back(const_cast<char*>(argument.c_str()));
    }
    argv.push_back(nullptr);
    REQUIRE(posix_spawn(&process_, kServer, nullptr, nullptr, argv.data(), environ) == 0);
    for (int i = 0; i < 3000 && address_.empty(); ++i) {
      std::ifstream file(address_file_);
      std::getline(file, address_);
      absl::SleepFor(absl::Milliseconds(10));
    }
    REQUIRE_FALSE(address_.empty());
  }
  void Kill() {
    if (process_ == 0) return;
    kill(process_, SIGKILL);
    waitpid(process_, nullptr, 0);
    process_ = 0;
  }
  const std::string& job() const { return job_; }
  const std::string& address() const { return address_; }

 private:
  static std::string Here() {
    char folder[4096];
    return getcwd(folder, sizeof(folder)) != nullptr ? folder : ".";
  }

  std::string job_;
  std::string address_file_;
  std::string address_;
  pid_t process_ = 0;
};

tessera_options OptionsFor(const Server& server) {
  tessera_options options = {};
  options.struct_size = sizeof(options);
  options.job_file = server.job().c_str();
  options.coordinator = server.address().c_str();
  options.rank = -1;
  options.timeout_seconds = 60;
  return options;
}

// The linear model's two tensors, and the pointers that the calls want.
struct Arrays {
  std::vector<float> weight = std::vector<float>(640);
  std::vector<float> bias = std::vector<float>(10);
  std::vector<float*> values() { return {weight.data(), bias.data()}; }
  std::vector<const float*> gradients() { return {weight.data(), bias.data()}; }
};

class Joined {
 public:
  explicit Joined(const Server& server) {
    const tessera_options options = OptionsFor(server);
    const tessera_status status = tessera_join(&options, &job);
    INFO(tessera_last_message());
    REQUIRE(status == TESSERA_OK);
  }
  ~Joined() {
    if (job != nullptr) tessera_close(job);
  }

  tessera_status Pull() {
    const auto values = model.values();
    return tessera_pull(job, values.data(), values.size(), &verdict);
  }
  tessera_status Step() { return tessera_step(job, 32, 1.5, &verdict); }
  tessera_status DoExchange(bool gradients = true) {
    const auto values = model.values();
    const auto changes = gradient.gradients();
    return tessera_exchange(job, gradients ? changes.data() : nullptr,
                            gradients ? changes.size() : 0, values.data(), values.size(), &verdict);
  }
  tessera_status Evaluate(double score = 0.5) {
    tessera_scores scores = {sizeof(scores), 1.25, score, 450};
    return tessera_evaluate(job, &scores, &verdict);
  }

  tessera_job* job = nullptr;
  tessera_verdict verdict = TESSERA_PULL;
  Arrays model;
  Arrays gradient;
};

bool Says(const char* part) { return absl::StrContains(tessera_last_message(), part); }

TEST_CASE("a wrong call of tessera_join is a status and a message") {
  tessera_job* job = reinterpret_cast<tessera_job*>(1);
  tessera_options options = {};
  CHECK(tessera_join(nullptr, &job) == TESSERA_INVALID_ARGUMENT);
  CHECK(job == nullptr);
  CHECK(tessera_join(&options, nullptr) == TESSERA_INVALID_ARGUMENT);
  CHECK(tessera_join(&options, &job) == TESSERA_INVALID_ARGUMENT);
  CHECK(Says("struct_size is 0"));
  options.struct_size = sizeof(options) + 8;
  CHECK(tessera_join(&options, &job) == TESSERA_INVALID_ARGUMENT);
  CHECK(Says("newer"));
  options.struct_size = sizeof(options);
  CHECK(tessera_join(&options, &job) == TESSERA_INVALID_ARGUMENT);
  CHECK(Says("job_file is NULL"));
  options.job_file = "no/such/job.yaml";
  options.log_level = "loud";
  CHECK(tessera_join(&options, &job) == TESSERA_INVALID_ARGUMENT);
  CHECK(Says("\"loud\""));
  options.log_level = nullptr;
  options.timeout_seconds = std::numeric_limits<double>::quiet_NaN();
  CHECK(tessera_join(&options, &job) == TESSERA_INVALID_ARGUMENT);
  options.timeout_seconds = 0;
  CHECK(tessera_join(&options, &job) == TESSERA_INVALID_ARGUMENT);
  CHECK(Says("no/such/job.yaml"));
}

TEST_CASE("calls of no job are refused") {
  tessera_verdict verdict;
  tessera_info info = {};
  tessera_job* const never = reinterpret_cast<tessera_job*>(0x1234);
  CHECK(tessera_wait(nullptr, &verdict) == TESSERA_INVALID_ARGUMENT);
  CHECK(tessera_wait(never, &verdict) == TESSERA_INVALID_ARGUMENT);
  CHECK(Says("no such job"));
  CHECK(tessera_get_info(never, &info) == TESSERA_INVALID_ARGUMENT);
  CHECK(tessera_leave(never) == TESSERA_INVALID_ARGUMENT);
  CHECK(tessera_close(never) == TESSERA_INVALID_ARGUMENT);
  CHECK(tessera_close(nullptr) == TESSERA_OK);
}

TEST_CASE("a job from its first pull to its end, with every wrong call in between") {
  Server server;
  Joined worker(server);
  tessera_info info = {};
  CHECK(tessera_get_info(worker.job, &info) == TESSERA_INVALID_ARGUMENT);
  info.struct_size = sizeof(info);
  REQUIRE(tessera_get_info(worker.job, &info) == TESSERA_OK);
  CHECK(info.tensor_count == 2);
  CHECK(info.parameter_count == 2);
  CHECK(info.pushes_gradient == 1);
  CHECK(info.has_rows == 1);
  CHECK(info.steps == 6);
  tessera_tensor tensor = {};
  tensor.struct_size = sizeof(tensor);
  REQUIRE(tessera_tensor_at(worker.job, 0, &tensor) == TESSERA_OK);
  CHECK(std::string(tensor.name) == "layers.0.weight");
  REQUIRE(tensor.dim_count == 2);
  CHECK(tensor.dims[0] == 10);
  CHECK(tensor.dims[1] == 64);
  CHECK(tensor.size == 640);
  CHECK(tessera_tensor_at(worker.job, 2, &tensor) == TESSERA_INVALID_ARGUMENT);
  CHECK(tessera_tensor_at(worker.job, -1, &tensor) == TESSERA_INVALID_ARGUMENT);

  // Before the first pull.
  CHECK(worker.Step() == TESSERA_FAILED_PRECONDITION);
  CHECK(Says("tessera_pull"));
  CHECK(worker.DoExchange() == TESSERA_FAILED_PRECONDITION);
  CHECK(worker.Evaluate() == TESSERA_FAILED_PRECONDITION);
  tessera_minibatch_info minibatch = {};
  minibatch.struct_size = sizeof(minibatch);
  CHECK(tessera_minibatch(worker.job, &minibatch) == TESSERA_FAILED_PRECONDITION);
  const void* bytes = nullptr;
  size_t size = 0;
  CHECK(tessera_load_state(worker.job, &bytes, &size) == TESSERA_FAILED_PRECONDITION);
  std::vector<float*> values = worker.model.values();
  CHECK(tessera_pull(worker.job, values.data(), 1, &worker.verdict) == TESSERA_INVALID_ARGUMENT);
  CHECK(Says("got 1 values, want 2"));
  CHECK(tessera_pull(worker.job, nullptr, 2, &worker.verdict) == TESSERA_INVALID_ARGUMENT);
  CHECK(tessera_pull(worker.job, values.data(), 2, nullptr) == TESSERA_INVALID_ARGUMENT);
  values[1] = nullptr;
  CHECK(tessera_pull(worker.job, values.data(), 2, &worker.verdict) == TESSERA_INVALID_ARGUMENT);
  CHECK(Says("\"layers.0.bias\""));

  REQUIRE(worker.Pull() == TESSERA_OK);
  CHECK(worker.verdict == TESSERA_TRAIN);
  CHECK(tessera_load_state(worker.job, &bytes, &size) == TESSERA_OK);
  CHECK(size == 0);
  CHECK(worker.Pull() == TESSERA_FAILED_PRECONDITION);
  // What was drawn for the weights has come, and the gradient below changes it.
  double sum = 0;
  for (const float value : worker.model.weight) sum += std::abs(value);
  CHECK(sum > 1);
  for (uint64_t step = 0; step < 6; ++step) {
    REQUIRE(worker.verdict == TESSERA_TRAIN);
    REQUIRE(tessera_minibatch(worker.job, &minibatch) == TESSERA_OK);
    CHECK(minibatch.step == step);
    CHECK(minibatch.row_count == 32);
    CHECK(minibatch.last == 1);
    CHECK(worker.DoExchange() == TESSERA_FAILED_PRECONDITION);
    CHECK(tessera_step(worker.job, 0, 1, &worker.verdict) == TESSERA_INVALID_ARGUMENT);
    REQUIRE(worker.Step() == TESSERA_OK);
    REQUIRE(worker.verdict == TESSERA_EXCHANGE);
    CHECK(worker.DoExchange(/*gradients=*/false) == TESSERA_INVALID_ARGUMENT);
    CHECK(worker.Step() == TESSERA_FAILED_PRECONDITION);
    const float before = worker.model.weight[5];
    worker.gradient.weight[5] = 2;
    REQUIRE(worker.DoExchange() == TESSERA_OK);
    CHECK(worker.model.weight[5] == before - 0.1f * 2);
  }
  REQUIRE(worker.verdict == TESSERA_EVALUATE);
  CHECK(worker.Evaluate(1.5) == TESSERA_INVALID_ARGUMENT);
  CHECK(worker.Evaluate(std::numeric_limits<double>::quiet_NaN()) == TESSERA_INVALID_ARGUMENT);
  REQUIRE(worker.Evaluate() == TESSERA_OK);
  CHECK(worker.verdict == TESSERA_STOP);
  CHECK(worker.Step() == TESSERA_FAILED_PRECONDITION);
  CHECK(Says("training is over"));
  tessera_job* const closed = std::exchange(worker.job, nullptr);
  CHECK(tessera_close(closed) == TESSERA_OK);
  CHECK(tessera_close(closed) == TESSERA_INVALID_ARGUMENT);
  CHECK(tessera_wait(closed, &worker.verdict) == TESSERA_INVALID_ARGUMENT);
}

TEST_CASE("a gradient is clipped over all tensors on its way to the servers, and stays as it was") {
  Server server("  steps: 2\n  clip_norm: 1\n");
  Joined worker(server);
  REQUIRE(worker.Pull() == TESSERA_OK);
  worker.gradient.weight[5] = 3;
  worker.gradient.bias[1] = -4;
  const float weight = worker.model.weight[5], bias = worker.model.bias[1];
  REQUIRE(worker.Step() == TESSERA_OK);
  REQUIRE(worker.DoExchange() == TESSERA_OK);
  // The norm is 5, of which clip_norm is a fifth.
  CHECK(worker.model.weight[5] == Approx(weight - 0.1 * 0.6).epsilon(1e-5));
  CHECK(worker.model.bias[1] == Approx(bias + 0.1 * 0.8).epsilon(1e-5));
  CHECK(worker.gradient.weight[5] == 3);
  CHECK(worker.gradient.bias[1] == -4);

  // One that is short enough is pushed bit for bit.
  worker.gradient.weight[5] = 0.25f;
  worker.gradient.bias[1] = 0;
  const float before = worker.model.weight[5], untouched = worker.model.bias[1];
  REQUIRE(worker.Step() == TESSERA_OK);
  REQUIRE(worker.DoExchange() == TESSERA_OK);
  CHECK(worker.model.weight[5] == before - 0.1f * 0.25f);
  CHECK(worker.model.bias[1] == untouched);
}

// What tessera_join or the first tessera_pull says, of a job that a caller cannot be given.
std::string RefusalOf(const Server& server) {
  const tessera_options options = OptionsFor(server);
  tessera_job* job = nullptr;
  tessera_status status = tessera_join(&options, &job);
  if (status == TESSERA_OK) {
    Arrays model;
    const auto values = model.values();
    tessera_verdict verdict = TESSERA_PULL;
    status = tessera_pull(job, values.data(), values.size(), &verdict);
  }
  const std::string message = tessera_last_message();
  CHECK(status == TESSERA_UNIMPLEMENTED);
  if (job != nullptr) tessera_close(job);
  return message;
}

TEST_CASE("a job that a caller cannot be given is refused with what to do instead") {
  {
    Server server("  steps: 4\n  clip_norm: 1\n", "local_sgd: {local_steps: 2}");
    const std::string message = RefusalOf(server);
    CHECK(absl::StrContains(message,
                            "train.clip_norm: is 1, but method local_sgd pushes no "
                            "gradients"));
    CHECK(absl::StrContains(message, "in front of the optimizer's step"));
  }
  Server server("  steps: 4\n", "data_parallel: {}",
                "linear: {units: 8}, batch_norm, relu, linear: {units: 10}");
  const std::string message = RefusalOf(server);
  CHECK(absl::StrContains(message, "model.layers: has a batch norm"));
  CHECK(absl::StrContains(message, "model.tensors"));
}

TEST_CASE(
    "where the caller's optimizer steps, gradients are refused and the change of the values is "
    "pushed") {
  Server server("  steps: 4\n", "local_sgd: {local_steps: 2}");
  Joined worker(server);
  REQUIRE(worker.Pull() == TESSERA_OK);
  const float before = worker.model.weight[3];
  worker.model.weight[3] += 1;
  REQUIRE(worker.Step() == TESSERA_OK);
  REQUIRE(worker.verdict == TESSERA_TRAIN);
  worker.model.weight[3] += 1;
  REQUIRE(worker.Step() == TESSERA_OK);
  REQUIRE(worker.verdict == TESSERA_EXCHANGE);
  CHECK(worker.DoExchange(/*gradients=*/true) == TESSERA_INVALID_ARGUMENT);
  CHECK(Says("want NULL"));
  REQUIRE(worker.DoExchange(/*gradients=*/false) == TESSERA_OK);
  CHECK(std::abs(worker.model.weight[3] - (before + 2)) < 1e-5);
  CHECK(tessera_leave(worker.job) == TESSERA_OK);
  CHECK(worker.Step() == TESSERA_OK);
  CHECK(worker.verdict == TESSERA_STOP);
}

TEST_CASE("calls about subnets are refused where there are none") {
  Server server;
  Joined worker(server);
  tessera_round round = {};
  round.struct_size = sizeof(round);
  CHECK(tessera_get_round(worker.job, &round) == TESSERA_FAILED_PRECONDITION);
  CHECK(Says("gives all workers the whole model"));
  const uint32_t* indices = nullptr;
  size_t count = 0;
  CHECK(tessera_subnet(worker.job, "a", &indices, &count) == TESSERA_FAILED_PRECONDITION);
  tessera_group group = {};
  group.struct_size = sizeof(group);
  CHECK(tessera_group_at(worker.job, 0, &group) == TESSERA_INVALID_ARGUMENT);
  tessera_info info = {};
  info.struct_size = sizeof(info);
  REQUIRE(tessera_get_info(worker.job, &info) == TESSERA_OK);
  CHECK((info.has_subnets == 0 && info.group_count == 0));
}

TEST_CASE("each round's arrays are asked for anew, and the whole model's for an evaluation") {
  Server server("  steps: 4\n", "ist: {local_steps: 2}",
                "linear: {units: 16}, relu, linear: {units: 10}");
  Joined worker(server);
  tessera_info info = {};
  info.struct_size = sizeof(info);
  REQUIRE(tessera_get_info(worker.job, &info) == TESSERA_OK);
  CHECK((info.has_subnets == 1 && info.group_count == 1));
  tessera_group group = {};
  group.struct_size = sizeof(group);
  REQUIRE(tessera_group_at(worker.job, 0, &group) == TESSERA_OK);
  CHECK(std::string(group.name) == "layers.0");
  CHECK(group.units == 16);
  CHECK(tessera_group_at(worker.job, 1, &group) == TESSERA_INVALID_ARGUMENT);

  const uint32_t* indices = nullptr;
  size_t count = 0;
  CHECK(tessera_subnet(worker.job, "layers.1", &indices, &count) == TESSERA_INVALID_ARGUMENT);
  CHECK(Says("want one of layers.0"));
  REQUIRE(tessera_subnet(worker.job, "layers.0", &indices, &count) == TESSERA_OK);
  // The only worker has all units.
  REQUIRE(count == 16);
  for (uint32_t i = 0; i < 16; ++i) CHECK(indices[i] == i);
  tessera_tensor tensor = {};
  tensor.struct_size = sizeof(tensor);
  REQUIRE(tessera_tensor_now(worker.job, 2, &tensor) == TESSERA_OK);
  CHECK(std::string(tensor.name) == "layers.2.weight");
  REQUIRE(tensor.dim_count == 2);
  CHECK((tensor.dims[0] == 10 && tensor.dims[1] == 16 && tensor.size == 160));
  CHECK(tessera_tensor_now(worker.job, 4, &tensor) == TESSERA_INVALID_ARGUMENT);

  std::vector<std::vector<float>> rounds[2];
  std::vector<float*> values[2];
  for (int i = 0; i < 2; ++i) {
    for (const size_t size : {16 * 64, 16, 160, 10}) rounds[i].emplace_back(size);
    for (std::vector<float>& array : rounds[i]) values[i].push_back(array.data());
  }
  tessera_round round = {};
  round.struct_size = sizeof(round);
  // No arrays are no answer while a round begins.
  CHECK(tessera_pull(worker.job, nullptr, 0, &worker.verdict) == TESSERA_INVALID_ARGUMENT);
  for (int i = 0; i < 2; ++i) {
    REQUIRE(tessera_get_round(worker.job, &round) == TESSERA_OK);
    CHECK((round.number == static_cast<uint64_t>(i + 1) && round.site == 0 && round.sites == 1));
    CHECK((round.whole == 0 && round.evaluation == 0));
    REQUIRE(tessera_pull(worker.job, values[i].data(), 4, &worker.verdict) == TESSERA_OK);
    REQUIRE(worker.verdict == TESSERA_TRAIN);
    rounds[i][1][3] += 2;
    REQUIRE(worker.Step() == TESSERA_OK);
    REQUIRE(worker.Step() == TESSERA_OK);
    REQUIRE(worker.verdict == TESSERA_EXCHANGE);
    REQUIRE(tessera_exchange(worker.job, nullptr, 0, values[i].data(), 4, &worker.verdict) ==
            TESSERA_OK);
    REQUIRE(worker.verdict == TESSERA_PULL);
  }
  // What the first round has trained is the second one's beginning, and its own arrays stay what they were.
  CHECK(rounds[1][1][3] == rounds[0][1][3] + 2);
  REQUIRE(tessera_get_round(worker.job, &round) == TESSERA_OK);
  CHECK((round.whole == 1 && round.evaluation == 1));
  REQUIRE(tessera_pull(worker.job, values[0].data(), 4, &worker.verdict) == TESSERA_OK);
  REQUIRE(worker.verdict == TESSERA_EVALUATE);
  CHECK(rounds[0] == rounds[1]);
  REQUIRE(worker.Evaluate() == TESSERA_OK);
  CHECK(worker.verdict == TESSERA_STOP);
}

TEST_CASE("a join that finds no server says for whom it waits, and is given up at once") {
  Server server;
  tessera_options options = OptionsFor(server);
  server.Kill();
  options.timeout_seconds = 0.5;
  tessera_job* job = nullptr;
  REQUIRE(tessera_join(&options, &job) == TESSERA_DEADLINE_EXCEEDED);
  CHECK(Says("waiting for"));
  REQUIRE(job != nullptr);
  REQUIRE(tessera_set_timeout(job, 0.1) == TESSERA_OK);
  tessera_verdict verdict;
  CHECK(tessera_wait(job, &verdict) == TESSERA_DEADLINE_EXCEEDED);
  tessera_tensor tensor = {};
  tensor.struct_size = sizeof(tensor);
  CHECK(tessera_tensor_at(job, 0, &tensor) == TESSERA_OK);
  const absl::Time begin = absl::Now();
  CHECK(tessera_close(job) == TESSERA_OK);
  CHECK(absl::Now() - begin < absl::Seconds(20));
}

TEST_CASE("a server that dies for good ends the caller's call with a reason") {
  Server server("  steps: 100\n");
  Joined worker(server);
  REQUIRE(worker.Pull() == TESSERA_OK);
  REQUIRE(worker.Step() == TESSERA_OK);
  REQUIRE(worker.DoExchange() == TESSERA_OK);
  server.Kill();
  tessera_status status = TESSERA_OK;
  for (int i = 0; i < 100 && status == TESSERA_OK; ++i) {
    status = worker.verdict == TESSERA_EXCHANGE ? worker.DoExchange() : worker.Step();
  }
  CHECK(status != TESSERA_OK);
  INFO(tessera_last_message());
  CHECK(std::string(tessera_last_message()) != "");
  // Later calls say it, too.
  CHECK(worker.Step() == status);
}

TEST_CASE("a child made by fork is told that the job is its parent's") {
  Server server;
  Joined worker(server);
  REQUIRE(worker.Pull() == TESSERA_OK);
  const pid_t child = fork();
  if (child == 0) {
    tessera_verdict verdict;
    const bool refused = tessera_step(worker.job, 1, 1, &verdict) == TESSERA_FAILED_PRECONDITION &&
                         Says("forked") && tessera_close(worker.job) == TESSERA_FAILED_PRECONDITION;
    _exit(refused ? 0 : 1);
  }
  int status = -1;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  CHECK(worker.Step() == TESSERA_OK);
}

TEST_CASE("a second thread is refused, and tessera_leave ends the first one's call") {
  // A second worker never comes, so that the pull waits.
  Server server("  steps: 100\n");
  Joined worker(server);
  REQUIRE(worker.Pull() == TESSERA_OK);
  std::atomic<bool> stop{false};
  std::atomic<int> refused{0};
  std::thread other([&] {
    tessera_info info = {};
    info.struct_size = sizeof(info);
    while (!stop) {
      const tessera_status status = tessera_get_info(worker.job, &info);
      if (status == TESSERA_FAILED_PRECONDITION) ++refused;
    }
  });
  for (int i = 0; i < 50 && worker.verdict != TESSERA_STOP; ++i) {
    const tessera_status status =
        worker.verdict == TESSERA_EXCHANGE ? worker.DoExchange() : worker.Step();
    CHECK((status == TESSERA_OK || status == TESSERA_FAILED_PRECONDITION));
  }
  stop = true;
  other.join();
  tessera_status left = TESSERA_INTERNAL;
  std::thread leaver([&] { left = tessera_leave(worker.job); });
  leaver.join();
  CHECK(left == TESSERA_OK);
  tessera_status status = TESSERA_OK;
  for (int i = 0; i < 4 && status == TESSERA_OK && worker.verdict != TESSERA_STOP; ++i) {
    status = worker.verdict == TESSERA_EXCHANGE ? worker.DoExchange() : worker.Step();
  }
  CHECK(status == TESSERA_OK);
  CHECK(worker.verdict == TESSERA_STOP);
}

// What the next test runs as a program of its own.
TEST_CASE("leaves its job open", "[.child]") {
  tessera_options options = {};
  options.struct_size = sizeof(options);
  options.job_file = std::getenv("CLIENT_TEST_JOB");
  options.coordinator = std::getenv("CLIENT_TEST_COORDINATOR");
  options.rank = -1;
  REQUIRE(options.job_file != nullptr);
  tessera_job* job = nullptr;
  REQUIRE(tessera_join(&options, &job) == TESSERA_OK);
  std::exit(0);
}

TEST_CASE("a program that ends with its job open ends well") {
  Server server;
  setenv("CLIENT_TEST_JOB", server.job().c_str(), 1);
  setenv("CLIENT_TEST_COORDINATOR", server.address().c_str(), 1);
  const char* argv[] = {"/proc/self/exe", "[.child]", nullptr};
  char self[4096] = {};
  REQUIRE(readlink("/proc/self/exe", self, sizeof(self) - 1) > 0);
  pid_t child = 0;
  REQUIRE(posix_spawn(&child, self, nullptr, nullptr, const_cast<char**>(argv), environ) == 0);
  int status = -1;
  REQUIRE(waitpid(child, &status, 0) == child);
  INFO("status " << status);
  CHECK((WIFEXITED(status) && WEXITSTATUS(status) == 0));
}

}  // namespace
