// A small job over the built-in digits, for train loops in one process.
#ifndef TESSERA_TESTS_WORKER_TRAIN_LOOP_JOB_H_
#define TESSERA_TESTS_WORKER_TRAIN_LOOP_JOB_H_

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "common/config/job_reader.h"

namespace tessera {

inline constexpr char kJob[] = R"(
name: loop
seed: 3
data:
  format: idx
  directory: deploy/data/optdigits
  train: {features: train-images-idx3-ubyte.gz, labels: train-labels-idx1-ubyte.gz}
  test: {features: test-images-idx3-ubyte.gz, labels: test-labels-idx1-ubyte.gz}
  normalize: {mean: 0.0, stddev: 0.0627451}
model: {input: [64], layers: [linear: {units: 24}, relu: {}, linear: {units: 10}]}
train: {batch_size: 12, steps: 50, evaluate_every: 0, optimizer: {sgd: {learning_rate: 0.05}}}
method: {data_parallel: {}}
)";

inline v1::Job Job(const std::vector<std::string>& overrides) {
  const JobReading reading = ReadJob({kJob, "loop.yaml", "", overrides}, {/*check_files=*/false});
  INFO(FormatJobErrors(reading.errors));
  REQUIRE(reading.ok());
  return reading.job;
}

}  // namespace tessera

#endif  // TESSERA_TESTS_WORKER_TRAIN_LOOP_JOB_H_
