#include "common/config/job_reader.h"

#include <catch2/catch.hpp>
#include <sys/stat.h>

#include <cstdlib>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "common/config/yaml_tree.h"
#include "tests/common/config/job_text.h"

namespace tessera {
namespace {

std::string Written(const std::string& name, const std::string& text) {
  const char* directory = std::getenv("TEST_TMPDIR");
  REQUIRE(directory != nullptr);
  const std::string path = absl::StrCat(directory, "/", name);
  std::ofstream(path, std::ios::binary) << text;
  return path;
}

TEST_CASE("a whole job is read as it stands", "[job_reader]") {
  const v1::Job job = Good(kJob);
  CHECK(job.name() == "small");
  CHECK(job.seed() == 7);
  CHECK(job.data().train().features_size() == 1);
  CHECK(job.data().train().features(0) == "a.gz");
  CHECK(job.model().input(0) == 64);
  REQUIRE(job.model().layers_size() == 4);
  CHECK_FALSE(job.model().layers(0).linear().bias());
  CHECK(job.model().layers(3).linear().bias());
  CHECK(job.train().optimizer().sgd().learning_rate() == 0.1);
  CHECK(job.method().local_sgd().local_steps() == 20);
  CHECK(job.codec().push().has_f32());
  CHECK(job.cluster().servers().count() == 2);
}

TEST_CASE("absent keys have the defaults of job.proto", "[job_reader]") {
  const std::string text =
      "name: a\n"
      "data: {format: csv, train: {features: a}, test: {features: b}}\n"
      "model: {input: 4, layers: [linear: {units: 2}, batch_norm, dropout]}\n"
      "train: {batch_size: 8, steps: 10, optimizer: {sgd: {learning_rate: 1}}}\n"
      "method: async_sgd\n";
  const v1::Job job = Good(text);
  CHECK(job.seed() == 0);
  CHECK(job.data().directory() == "/jobs");
  CHECK(job.data().partition() == "global");
  CHECK(job.data().normalize().stddev(0) == 1);
  CHECK(job.model().loss() == "softmax_cross_entropy");
  CHECK(job.model().layers(0).linear().bias());
  CHECK(job.model().layers(1).batch_norm().affine());
  CHECK(job.model().layers(1).batch_norm().epsilon() == 1e-5);
  CHECK(job.model().layers(2).dropout().probability() == 0.5);
  CHECK(job.train().evaluate_every() == 1);
  CHECK(job.train().micro_batch() == 0);
  CHECK(job.train().precision() == "f32");
  CHECK(job.method().async_sgd().local_steps() == 1);
  CHECK(job.method().async_sgd().staleness().constant().scale() == 1);
  CHECK_FALSE(job.codec().has_push());
  CHECK(job.cluster().servers().count() == 1);
  CHECK(job.cluster().workers() == 1);
  CHECK(job.cluster().device() == "cpu");
  CHECK(job.cluster().lease_timeout() == 10000000000);
  CHECK(job.checkpoint().keep() == 3);
}

TEST_CASE("ssp is a method whose keys have defaults", "[job_reader]") {
  for (const char* ssp : {"method: ssp", "method: {ssp: {}}"}) {
    const v1::Job job = Good(JobWith("method: {local_sgd: {local_steps: 20}}", ssp));
    CHECK(job.method().ssp().bound() == 2);
    CHECK(job.method().ssp().local_steps() == 1);
  }
}

TEST_CASE("{} and null stand for all defaults of a message", "[job_reader]") {
  const std::string want = Good(JobWith("security: {}\n", "")).SerializeAsString();
  CHECK(Good(JobWith("security: {}\n", "security:\n")).SerializeAsString() == want);
  CHECK(Good(JobWith("security: {}\n", "security: null\n")).SerializeAsString() == want);
  CHECK(Good(JobWith("relu: {}", "relu:")).SerializeAsString() == want);
  CHECK(Good(JobWith("- relu: {}", "- relu")).SerializeAsString() == want);
}

TEST_CASE("a list of one may be written without brackets", "[job_reader]") {
  CHECK(Good(JobWith("input: [64]", "input: 64")).SerializeAsString() ==
        Good(kJob).SerializeAsString());
}

TEST_CASE("listed servers are counted", "[job_reader]") {
  const v1::Job job = Good(JobWith("servers: 2", "servers: [\"10.0.0.1:7000\", \"[::1]:7001\"]"));
  CHECK(job.cluster().servers().count() == 2);
  CHECK(job.cluster().servers().addresses(1) == "[::1]:7001");
}

TEST_CASE("durations and sizes carry their units", "[job_reader]") {
  const v1::Job job =
      Good(JobWith("lease_timeout: 10s", "lease_timeout: 1m30s, memory_limit: 4MiB"));
  CHECK(job.cluster().lease_timeout() == 90000000000);
  CHECK(job.cluster().memory_limit() == 4194304);
}

TEST_CASE("an alias repeats a part of the job", "[job_reader]") {
  const v1::Job job = Good(JobWith("    - linear: {units: 32, bias: false}\n    - batch_norm\n",
                                   "    - &block {linear: {units: 32}}\n    - *block\n"));
  CHECK(job.model().layers(1).linear().units() == 32);
}

TEST_CASE("every error is reported at once, in the order of the file", "[job_reader]") {
  const std::string text =
      "name: [x]\n"
      "sed: 7\n"
      "data: {format: idy, train: {features: []}, tst: {}}\n"
      "model: {input: [0], layers: [linear: {}, {}], loss: mse}\n"
      "train: {batch_size: none, optimizer: {sgd: {learning_rate: -1}}}\n"
      "cluster: {workers: 0, device: tpu, lease_timeout: 5}\n";
  CHECK(Errors(text) ==
        "x.yaml:1:1: method: missing, want exactly one of data_parallel, local_sgd, diloco, "
        "async_sgd, softsync, ssp, quant_dp, ist, ensemble, slim_dp, decentralized, "
        "layer_separation\n"
        "x.yaml:1:7: name: got a list, want text\n"
        "x.yaml:2:1: sed: unknown key; did you mean \"seed\"?\n"
        "x.yaml:3:1: data.test: missing, want a map of features, labels\n"
        "x.yaml:3:16: data.format: got \"idy\", want one of idx, csv, libsvm, xc, cifar, npy, "
        "images, tokens, text; did you mean \"idx\"?\n"
        "x.yaml:3:39: data.train.features: got a list of 0, want 1 to 64 items\n"
        "x.yaml:3:44: data.tst: unknown key; did you mean \"test\"?\n"
        "x.yaml:4:17: model.input.0: got \"0\", want an integer in [1, 16777216]\n"
        "x.yaml:4:30: model.layers.0.linear.units: missing, want an integer in [1, 16777216], "
        "or vocabulary\n"
        "x.yaml:4:42: model.layers.1: got nothing, want exactly one of linear, batch_norm, relu, "
        "dropout, conv2d, max_pool, avg_pool, residual, concat, repeat, layer_norm, group_norm, "
        "local_response_norm, gelu, tanh, sigmoid, silu, leaky_relu, embedding, "
        "attention\n"
        "x.yaml:4:53: model.loss: got \"mse\", want one of softmax_cross_entropy, "
        "sigmoid_cross_entropy, mean_squared_error; did you mean \"mean_squared_error\"?\n"
        "x.yaml:5:1: train: missing a key, want exactly one of epochs, steps\n"
        "x.yaml:5:21: train.batch_size: got \"none\", want an integer in [1, 1048576]\n"
        "x.yaml:5:60: train.optimizer.sgd.learning_rate: got \"-1\", want a number in [0, "
        "1e+06]\n"
        "x.yaml:6:20: cluster.workers: got \"0\", want an integer in [1, 1024]\n"
        "x.yaml:6:31: cluster.device: got \"tpu\", want cpu, cuda or cuda:N\n"
        "x.yaml:6:51: cluster.lease_timeout: got \"5\", want a duration such as 10s, in [200ms, "
        "1h]\n");
}

TEST_CASE("what is no map is no job", "[job_reader]") {
  CHECK(Errors("") == "x.yaml:1:1: empty, want a job\n");
  CHECK(Errors("# nothing\n---\n") == "x.yaml:1:1: empty, want a job\n");
  const std::string wanted =
      "name, seed, data, model, train, method, codec, cluster, checkpoint, security";
  CHECK(Errors("[a]\n") == "x.yaml:1:1: got a list, want a map of " + wanted + "\n");
  CHECK(Errors("hello\n") == "x.yaml:1:1: got \"hello\", want a map of " + wanted + "\n");
}

TEST_CASE("user text in a message is quoted, escaped and cut", "[job_reader]") {
  CHECK(Errors(JobWith("seed: 7", "seed: \"a\\\"\\n" + std::string(100, 'b') + "\"")) ==
        "x.yaml:2:7: seed: got the string \"a\\\"\\n" + std::string(57, 'b') +
            "...\", want an integer in [0, 18446744073709551615], without quotes\n");
  CHECK_THAT(Errors(JobWith("seed: 7", "\"se ed\": 7")),
             Catch::StartsWith("x.yaml:2:1: \"se ed\": unknown key"));
}

TEST_CASE("a text longer than the limit is refused", "[job_reader]") {
  CHECK(Errors(JobWith("name: small", "name: " + std::string(4097, 'n'))) ==
        "x.yaml:1:7: name: got 4097 bytes, want at most 4096\n");
}

TEST_CASE("errors beyond the limit are counted", "[job_reader]") {
  std::string text = kJob;
  for (int i = 0; i < 150; ++i) absl::StrAppend(&text, "wrong", i, ": 1\n");
  const std::vector<JobError> errors = Reading(text).errors;
  REQUIRE(errors.size() == kJobErrorsMax + 1);
  CHECK(FormatJobError(errors.back()) == "x.yaml: 50 more errors");
}

TEST_CASE("job paths start at the job file's directory", "[job_reader]") {
  CHECK(Good(kJob).data().directory() == "/jobs/data");
  CHECK(Good(kJob, {"data.directory=../up/./x/"}).data().directory() == "/up/x");
  CHECK(Good(kJob, {"data.directory=/abs"}).data().directory() == "/abs");
  CHECK(Good(kJob).checkpoint().directory().empty());
}

TEST_CASE("a job file is read from disk, its paths from where it lies", "[job_reader]") {
  const std::string path = Written("job.yaml", kJob);
  const JobReading reading = ReadJobFile(path, {"seed=9"}, {/*check_files=*/false});
  INFO(FormatJobErrors(reading.errors));
  REQUIRE(reading.ok());
  CHECK(reading.job.seed() == 9);
  CHECK(reading.job.data().directory() == absl::StrCat(std::getenv("TEST_TMPDIR"), "/data"));
}

TEST_CASE("a job file that cannot be read says why", "[job_reader]") {
  const std::string directory = std::getenv("TEST_TMPDIR");
  const auto problem = [](const std::string& path) {
    return FormatJobErrors(ReadJobFile(path, {}, {}).errors);
  };
  CHECK(problem(directory + "/none.yaml") ==
        directory + "/none.yaml: cannot be read: No such file or directory\n");
  CHECK(problem(directory) == directory + ": cannot be read: Is a directory\n");
  const std::string large = Written("large.yaml", std::string(kJobFileBytesMax + 1, '\n'));
  CHECK(problem(large) == large + ": more than 1048576 bytes, want a job file\n");
  CHECK(problem("/dev/zero") == "/dev/zero: more than 1048576 bytes, want a job file\n");
  const std::string pipe = directory + "/pipe";
  REQUIRE(mkfifo(pipe.c_str(), 0600) == 0);
  CHECK(problem(pipe) == pipe + ":1:1: empty, want a job\n");
}

}  // namespace
}  // namespace tessera
