// Jobs on the built-in digits, simulated to their end on a plain cluster.
#ifndef TESSERA_TESTS_DEPLOY_SIMULATE_SIMULATED_DIGITS_H_
#define TESSERA_TESTS_DEPLOY_SIMULATE_SIMULATED_DIGITS_H_

#include <catch2/catch.hpp>
#include <string>
#include <utility>
#include <vector>

#include "common/base/log.h"
#include "common/config/job_reader.h"
#include "deploy/simulate/simulation.h"
#include "nlohmann/json.hpp"
#include "worker/data/load_datasets.h"

namespace tessera {

using Json = nlohmann::json;

inline v1::Job ReadDigits(const std::string& name, std::vector<std::string> overrides = {}) {
  SetLogLevel(LogLevel::kError);
  const JobReading reading = ReadJobFile("deploy/jobs/" + name + ".yaml", overrides, JobOptions{});
  INFO(FormatJobErrors(reading.errors));
  REQUIRE(reading.ok());
  return reading.job;
}

inline const Datasets& Digits() {
  static const auto* const data = [] {
    ModelEnds ends;
    ends.inputs = 64;
    ends.outputs = 10;
    return new Datasets(*LoadDatasets(ReadDigits("digits"), ends));
  }();
  return *data;
}

inline SimulationOptions Cluster() {
  SimulationOptions options;
  options.bandwidth = 125'000'000;
  options.latency = 1'000'000;
  options.step_time = 5'000'000;
  return options;
}

struct Result {
  absl::Status outcome;
  std::string text;
  Json report;
};

inline Result Simulate(const v1::Job& job, const SimulationOptions& options) {
  const auto simulation = Simulation::Create(job, options, &Digits());
  REQUIRE(simulation.ok());
  while (!(*simulation)->Run(100000)) {
  }
  Result result;
  result.outcome = (*simulation)->outcome();
  result.text = (*simulation)->Report();
  if (!result.text.empty()) result.report = Json::parse(result.text);
  return result;
}

}  // namespace tessera

#endif  // TESSERA_TESTS_DEPLOY_SIMULATE_SIMULATED_DIGITS_H_
