// What a worker's file says of the model.
#include <sys/stat.h>

#include <catch2/catch.hpp>
#include <string>
#include <utility>
#include <vector>

#include "common/checkpoint/model_facts.h"
#include "common/checkpoint/safetensors_reader.h"
#include "tests/common/checkpoint/saved_model.h"
#include "worker/checkpoint/worker_saver.h"

namespace tessera {
namespace {

TEST_CASE("a worker's file has what the model is beside its parameters", "[worker_saver]") {
  const std::string folder = EmptyFolder();
  std::vector<v1::SavedRequest> told;
  WorkerSaver::Options options;
  options.parts = PartsIn(folder);
  options.rank = Rank(2);
  options.tell = [&told](v1::SavedRequest request) {
    told.push_back(std::move(request));
    return v1::SavedReply();
  };
  options.facts.labels = {1, 3};
  options.facts.mean = {0.5};
  options.facts.stddev = {2};
  options.facts.train_sum = 7;
  WorkerCursor cursor;
  cursor.progress.step = 60;
  cursor.norm_constants = GENERATE(std::vector<float>{}, std::vector<float>{1, 2});
  REQUIRE(mkdir((folder + "/" + PartialFolderName(60)).c_str(), 0777) == 0);
  std::vector<float> momentum = {1, 2, 3};
  const PrivateState state = {{{"state.momentum.w", absl::MakeSpan(momentum)}}};
  WorkerSaver(options).Save(1, 60, cursor, state);
  REQUIRE(told.size() == 1);
  const v1::SavedFile& saved = told[0].file();
  const CheckpointFile file = {saved.name(), static_cast<int64_t>(saved.bytes()), saved.sum()};
  const std::string path = folder + "/" + PartialFolderName(60) + "/" + WrittenName(file);
  const auto read = SafetensorsReader::Open(path);
  REQUIRE(read.ok());
  const auto facts = ReadFacts(**read);
  REQUIRE(facts.ok());
  CHECK((*facts)->ReadsAs(options.facts));
  CHECK((*facts)->train_sum == 7);
  CHECK((*facts)->norm_constants == cursor.norm_constants);
  // What it is beside the worker's own, which comes back as ever.
  momentum = {0, 0, 0};
  REQUIRE(ReadWorkerFile(path, state).ok());
  CHECK(momentum == std::vector<float>{1, 2, 3});
}

}  // namespace
}  // namespace tessera
