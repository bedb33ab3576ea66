// A small language for tests of the job reader: a whole job as text, and what comes out.
#ifndef TESSERA_TESTS_COMMON_CONFIG_JOB_TEXT_H_
#define TESSERA_TESTS_COMMON_CONFIG_JOB_TEXT_H_

#include <catch2/catch.hpp>

#include <string>
#include <vector>

#include "absl/strings/str_replace.h"
#include "common/config/job_reader.h"

namespace tessera {

inline const char kJob[] =
    "name: small\n"                                             // 1
    "seed: 7\n"                                                 // 2
    "data:\n"                                                   // 3
    "  format: idx\n"                                           // 4
    "  directory: data\n"                                       // 5
    "  train: {features: a.gz, labels: b.gz}\n"                 // 6
    "  test: {features: [c.gz], labels: d.gz}\n"                // 7
    "model:\n"                                                  // 8
    "  input: [64]\n"                                           // 9
    "  layers:\n"                                               // 10
    "    - linear: {units: 32, bias: false}\n"                  // 11
    "    - batch_norm\n"                                        // 12
    "    - relu: {}\n"                                          // 13
    "    - linear: {units: 10}\n"                               // 14
    "train:\n"                                                  // 15
    "  batch_size: 16\n"                                        // 16
    "  epochs: 3\n"                                             // 17
    "  optimizer: {sgd: {learning_rate: 0.1}}\n"                // 18
    "method: {local_sgd: {local_steps: 20}}\n"                  // 19
    "codec: {push: f32}\n"                                      // 20
    "cluster: {servers: 2, workers: 2, lease_timeout: 10s}\n"   // 21
    "checkpoint: {directory: \"\", every_steps: 0, keep: 3}\n"  // 22
    "security: {}\n";                                           // 23

// kJob with `from`, which must be in it, replaced by `to`.
inline std::string JobWith(const std::string& from, const std::string& to) {
  INFO("text to replace: " << from);
  REQUIRE(std::string(kJob).find(from) != std::string::npos);
  return absl::StrReplaceAll(kJob, {{from, to}});
}

// Without a look at data files; paths start at /jobs.
inline JobReading Reading(const std::string& text, const std::vector<std::string>& overrides = {}) {
  return ReadJob({text, "x.yaml", "/jobs", overrides}, {/*check_files=*/false});
}

// A job without errors.
inline v1::Job Good(const std::string& text, const std::vector<std::string>& overrides = {}) {
  const JobReading reading = Reading(text, overrides);
  INFO(FormatJobErrors(reading.errors));
  REQUIRE(reading.ok());
  return reading.job;
}

// All errors, a line each.
inline std::string Errors(const std::string& text, const std::vector<std::string>& overrides = {}) {
  return FormatJobErrors(Reading(text, overrides).errors);
}

}  // namespace tessera

#endif  // TESSERA_TESTS_COMMON_CONFIG_JOB_TEXT_H_
