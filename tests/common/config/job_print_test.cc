#include "common/config/job_print.h"

#include <catch2/catch.hpp>

#include "common/config/job_digest.h"
#include "tests/common/config/job_text.h"

namespace tessera {
namespace {

void CheckRoundTrip(const v1::Job& job) {
  const std::string text = PrintJob(job);
  INFO(text);
  const JobReading reading = ReadJob({text, "printed.yaml", "/elsewhere", {}}, {false});
  INFO(FormatJobErrors(reading.errors));
  REQUIRE(reading.ok());
  CHECK(reading.job.SerializeAsString() == job.SerializeAsString());
  CHECK(JobDigest(reading.job) == JobDigest(job));
  CHECK(PrintJob(reading.job) == text);
}

TEST_CASE("a printed job reads back to the same job from any directory", "[job_print]") {
  CheckRoundTrip(Good(kJob));
  CheckRoundTrip(Good(kJob, {"train.steps=5"}));
  CheckRoundTrip(Good(kJob, {"method=data_parallel", "codec="}));
  CheckRoundTrip(Good(kJob, {"method.async_sgd.staleness.constant.scale=0.3"}));
  CheckRoundTrip(
      Good(kJob, {"method={softsync: {pushes: 2, staleness: {power: {exponent: 0.3}}}}"}));
  CheckRoundTrip(Good(kJob, {"method={ssp: {bound: 0}}"}));
  CheckRoundTrip(Good(kJob, {"method=ssp"}));
  CheckRoundTrip(Good(kJob, {"method={diloco: {quorum: {pushes: 1, grace: 1.5s}}}"}));
  CheckRoundTrip(Good(kJob, {"method={diloco: {overlap: true, quorum: {pushes: 1, adaptive_grace: "
                             "true, weights: squared_examples}}}"}));
  CheckRoundTrip(Good(kJob, {"train.schedule={warmup: 10, decay: {cosine: {examples: 99}}}"}));
  CheckRoundTrip(Good(kJob, {"train.optimizer={adam: {learning_rate: 0.1}}"}));
  CheckRoundTrip(Good(kJob, {"cluster.servers=[\"[::1]:7000\", \"b:7001\"]"}));
  CheckRoundTrip(Good(kJob, {"cluster.memory_limit=1000001", "cluster.lease_timeout=1m0.5s"}));
  CheckRoundTrip(Good(kJob, {"seed=18446744073709551615", "model.input=[1, 8, 8]"}));
  CheckRoundTrip(Good(kJob, {"train.optimizer.sgd.learning_rate=0.1000000000000001"}));
  CheckRoundTrip(Good(kJob, {"data.normalize.mean=[0.5, 0.25]", "model.input=[2, 8, 4]"}));
  CheckRoundTrip(
      Good(kJob, {"model.layers.2={residual: {layers: [linear: {units: 32}, {concat: [[], "
                  "[relu], []]}, {linear: {units: 32}}]}}"}));
  CheckRoundTrip(
      Good(kJob, {"model.layers.2={concat: [[{repeat: {times: 2, layers: [relu]}}], []]}"}));
}

TEST_CASE("names that YAML could take for something else come back as they were", "[job_print]") {
  for (const char* name :
       {"null", "~",     "true", "5",  "-",   "- a",  "a: b", "a #b",
        "#a",   "{x}",   "[x]",  "*a", "&a",  "!a",   "%a",   "@a",
        "`a",   "|",     ">",    "'",  "a,b", "?",    "<<",   "yes",
        "\\\"", "\\\\n", ".inf", " x", "x ",  "0x10", "1e5",  "\xc3\xa9t\xc3\xa9"}) {
    INFO(name);
    const v1::Job job = Good(kJob, {std::string("name=\"") + name + "\""});
    CheckRoundTrip(job);
  }
}

TEST_CASE("a job is printed whole, defaults included, in the order of the schema", "[job_print]") {
  CHECK(PrintJob(Good(kJob)) ==
        "name: small\n"
        "seed: 7\n"
        "data:\n"
        "  format: idx\n"
        "  directory: /jobs/data\n"
        "  train:\n"
        "    features: [a.gz]\n"
        "    labels: [b.gz]\n"
        "  test:\n"
        "    features: [c.gz]\n"
        "    labels: [d.gz]\n"
        "  normalize:\n"
        "    mean: [0]\n"
        "    stddev: [1]\n"
        "    per_feature: false\n"
        "  partition: global\n"
        "  resize: 0\n"
        "  crop: 0\n"
        "  augment:\n"
        "    crop:\n"
        "      padding: 0\n"
        "    resized_crop:\n"
        "      size: 0\n"
        "  memory: 0\n"
        "  threads: 1\n"
        "model:\n"
        "  input: [64]\n"
        "  layers:\n"
        "    - linear:\n"
        "        units: 32\n"
        "        bias: false\n"
        "        tied: false\n"
        "    - batch_norm:\n"
        "        affine: true\n"
        "        epsilon: 1e-05\n"
        "    - relu: {}\n"
        "    - linear:\n"
        "        units: 10\n"
        "        bias: true\n"
        "        tied: false\n"
        "  loss: softmax_cross_entropy\n"
        "  label_smoothing: 0\n"
        "  init: \"\"\n"
        "  tensors: \"\"\n"
        "train:\n"
        "  batch_size: 16\n"
        "  micro_batch: 0\n"
        "  epochs: 3\n"
        "  optimizer:\n"
        "    sgd:\n"
        "      learning_rate: 0.1\n"
        "      momentum: 0\n"
        "      weight_decay: 0\n"
        "      nesterov: false\n"
        "  evaluate_every: 1\n"
        "  target_accuracy: 0\n"
        "  precision: f32\n"
        "  clip_norm: 0\n"
        "  schedule:\n"
        "    warmup: 0\n"
        "    decay:\n"
        "      constant: {}\n"
        "method:\n"
        "  local_sgd:\n"
        "    local_steps: 20\n"
        "    average_state: false\n"
        "    overlap: false\n"
        "    fragments: 1\n"
        "    delay: 0\n"
        "    alpha: 0\n"
        "codec:\n"
        "  push:\n"
        "    f32: {}\n"
        "  error_feedback: false\n"
        "  flush: false\n"
        "cluster:\n"
        "  servers:\n"
        "    count: 2\n"
        "  workers: 2\n"
        "  device: cpu\n"
        "  cudnn: true\n"
        "  threads: 1\n"
        "  lease_timeout: 10s\n"
        "  memory_limit: 0\n"
        "  evaluation_memory: 1GiB\n"
        "  replicas: 0\n"
        "  coordinator:\n"
        "    directory: \"\"\n"
        "    away_timeout: 5m\n"
        "  transport: auto\n"
        "checkpoint:\n"
        "  directory: \"\"\n"
        "  every_steps: 0\n"
        "  keep: 3\n"
        "  restore: \"\"\n"
        "  store: shared_folder\n"
        "  copies: 2\n"
        "security:\n"
        "  certificate: \"\"\n"
        "  private_key: \"\"\n"
        "  authority: \"\"\n"
        "  token_file: \"\"\n"
        "  insecure: false\n");
}

}  // namespace

TEST_CASE("a model of tokens is printed as it is written, and read back with its digest",
          "[print]") {
  const std::string text = JobWith("input: [64]", "input: {tokens: {vocabulary: 9, context: 4}}");
  const std::string layers =
      "model.layers=[embedding: {units: 8}, linear: {units: vocabulary, tied: true}]";
  const std::vector<std::string> changes = {
      layers, "data={format: text, train: {features: a}, test: {features: b}}"};
  const v1::Job job = Good(text, changes);
  CHECK(job.model().input().empty());
  CHECK(job.model().tokens().context() == 4);
  const std::string printed = PrintJob(job);
  CHECK(printed.find("  input:\n    tokens:\n      vocabulary: 9\n      context: 4\n") !=
        std::string::npos);
  CHECK(printed.find("units: vocabulary\n") != std::string::npos);
  CHECK(JobDigest(Good(printed)) == JobDigest(job));
  CHECK(JobDigest(JobOfText(CanonicalJobText(job))) == JobDigest(job));
  // A --set may change a key of it, and put it in the place of sizes.
  std::vector<std::string> longer = changes;
  longer.push_back("model.input.tokens.context=6");
  CHECK(Good(text, longer).model().tokens().context() == 6);
  std::vector<std::string> made = changes;
  made.push_back("model.input.tokens={vocabulary: 9, context: 4}");
  CHECK(JobDigest(Good(kJob, made)) == JobDigest(job));
}

}  // namespace tessera
