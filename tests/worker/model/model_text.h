// Models written as the `model` key of a job file.
#ifndef TESSERA_TESTS_WORKER_MODEL_MODEL_TEXT_H_
#define TESSERA_TESTS_WORKER_MODEL_MODEL_TEXT_H_

#include <catch2/catch.hpp>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/config/job_reader.h"
#include "proto/job.pb.h"

namespace tessera {

inline v1::Model ModelOfText(const std::string& text) {
  const std::string job = absl::StrCat(
      "name: x\ndata: {format: npy, train: {features: a, labels: a}, test: {features: a, labels: "
      "a}}\n"
      "train: {batch_size: 6, steps: 1, optimizer: {sgd: {learning_rate: 1}}}\n"
      "method: data_parallel\nmodel: ",
      text);
  const JobReading reading = ReadJob({job, "x.yaml", "", {}}, {/*check_files=*/false});
  INFO(FormatJobErrors(reading.errors));
  REQUIRE(reading.ok());
  return reading.job.model();
}

}  // namespace tessera

#endif  // TESSERA_TESTS_WORKER_MODEL_MODEL_TEXT_H_
