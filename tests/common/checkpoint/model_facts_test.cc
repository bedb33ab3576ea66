#include "common/checkpoint/model_facts.h"

#include <catch2/catch.hpp>
#include <filesystem>
#include <limits>
#include <string>
#include <vector>

#include "tests/common/checkpoint/saved_model.h"

namespace tessera {
namespace {

ModelFacts Facts() {
  ModelFacts facts;
  facts.labels = {-1, 3, 2000};
  facts.mean = {0.5, -2};
  facts.stddev = {1, 0.25};
  facts.train_sum = 0x0123456789abcdef;
  facts.norm_constants = {1, 2, 3, 4};
  return facts;
}

// A file of these facts and metadata, as a worker's begins.
std::string Written(const ModelFacts& facts, const TensorMetadata& metadata) {
  const std::string path = EmptyFolder() + "/facts";
  auto writer = SafetensorsWriter::Create(path, FactTensors(facts), metadata);
  REQUIRE(writer.ok());
  REQUIRE(AppendFacts(facts, writer->get()).ok());
  REQUIRE((*writer)->Finish().ok());
  return path;
}

absl::StatusOr<std::optional<ModelFacts>> ReadBack(const ModelFacts& facts,
                                                   const TensorMetadata& metadata) {
  const auto file = SafetensorsReader::Open(Written(facts, metadata));
  REQUIRE(file.ok());
  return ReadFacts(**file);
}

absl::StatusOr<std::optional<ModelFacts>> ReadBack(const ModelFacts& facts) {
  return ReadBack(facts, FactMetadata(facts));
}

std::string Refusal(const ModelFacts& facts) {
  const auto read = ReadBack(facts);
  CHECK(absl::IsInvalidArgument(read.status()));
  return std::string(read.status().message());
}

void AddWorker(const std::string& folder, uint64_t rank, const ModelFacts& facts,
               Manifest* manifest) {
  auto writer = SafetensorsWriter::CreatePart(folder, WorkerFileName(rank), FactTensors(facts),
                                              FactMetadata(facts));
  REQUIRE(writer.ok());
  REQUIRE(AppendFacts(facts, writer->get()).ok());
  const auto file = (*writer)->Finish();
  REQUIRE(file.ok());
  manifest->files.push_back(*file);
}

// With a file of each of two workers.
std::string SaveCheckpoint(const ModelFacts& first, const ModelFacts& second) {
  const std::string parent = EmptyFolder(), folder = parent + "/" + StepFolderName(400);
  std::filesystem::create_directory(folder);
  Manifest manifest = ManifestOf(1);
  REQUIRE(SaveShard(folder, 0, &manifest).ok());
  AddWorker(folder, 0, first, &manifest);
  AddWorker(folder, 1, second, &manifest);
  for (const CheckpointFile& file : manifest.files) {
    std::filesystem::rename(folder + "/" + WrittenName(file), folder + "/" + file.name);
  }
  WriteText(folder + "/" + kManifestName, FormatManifest(manifest));
  return parent;
}

TEST_CASE("a file brings back what its model was trained with", "[model_facts]") {
  ModelFacts facts = Facts();
  SECTION("all of it") {}
  SECTION("labels that are classes") { facts.labels.clear(); }
  SECTION("no constants of batch norms") { facts.norm_constants.clear(); }
  SECTION("one normalisation for all inputs") {
    facts.mean = {0};
    facts.stddev = {1e-3};
  }
  SECTION("rows of bytes") { facts.bytes = true; }
  SECTION("tokens that are characters") {
    facts.labels.clear();
    facts.characters = {'\n', 'a', 0x20ac, 0x10ffff};
  }
  const auto read = ReadBack(facts);
  REQUIRE(read.ok());
  REQUIRE(read->has_value());
  CHECK((*read)->ReadsAs(facts));
  CHECK((*read)->bytes == facts.bytes);
  CHECK((*read)->train_sum == facts.train_sum);
  CHECK((*read)->norm_constants == facts.norm_constants);
}

TEST_CASE("a file of an older build has none, nor has one that was given none", "[model_facts]") {
  CHECK(FactTensors(ModelFacts()).empty());
  for (const TensorMetadata& metadata : {TensorMetadata{{"step", "40"}}, TensorMetadata()}) {
    const auto read = ReadBack(ModelFacts(), metadata);
    REQUIRE(read.ok());
    CHECK_FALSE(read->has_value());
  }
}

TEST_CASE("bytes that are not those that were written are refused", "[model_facts]") {
  const ModelFacts facts = Facts();
  const std::string path = Written(facts, FactMetadata(facts));
  std::string text = TextOf(path);
  const size_t at = GENERATE(size_t{1}, size_t{20}, size_t{60});
  text[text.size() - at] ^= 1;
  WriteText(path, text);
  const auto read = ReadFacts(**SafetensorsReader::Open(path));
  CHECK(absl::IsInvalidArgument(read.status()));
  CHECK(read.status().message().find(path) != absl::string_view::npos);
}

TEST_CASE("models of other characters read their rows differently", "[model_facts]") {
  ModelFacts a = Facts(), b = Facts();
  a.characters = {'a', 'b'};
  CHECK_FALSE(a.ReadsAs(b));
  b.characters = {'a', 'c'};
  CHECK_FALSE(a.ReadsAs(b));
  b.characters = a.characters;
  CHECK(a.ReadsAs(b));
}

TEST_CASE("facts without characters have the sum that builds before characters wrote",
          "[model_facts]") {
  CHECK(FactMetadata(Facts()).at("facts_xxh3") == "dd8bd6a2cea3a222");
  ModelFacts facts = Facts();
  facts.characters = {'a'};
  CHECK(FactMetadata(facts).at("facts_xxh3") != "dd8bd6a2cea3a222");
}

TEST_CASE("facts that contradict each other are refused, with their file", "[model_facts]") {
  ModelFacts facts = Facts();
  SECTION("characters out of order") {
    facts.characters = {'b', 'a'};
    CHECK(Refusal(facts).find("characters do not ascend") != std::string::npos);
  }
  SECTION("numbers that are no characters") {
    facts.characters = {'b', 0x110000};
    CHECK(
        Refusal(facts).find("characters are from 98 to 1114112, want code points, 0 to 1114111") !=
        std::string::npos);
  }
  SECTION("a mean without a deviation") {
    facts.stddev.pop_back();
    CHECK(Refusal(facts).find("normalization.mean has 2 entries") != std::string::npos);
  }
  SECTION("a deviation that divides by nothing") {
    facts.stddev[1] = GENERATE(0.0, -1.0, 1e-60, std::numeric_limits<double>::quiet_NaN());
    CHECK(Refusal(facts).find("normalisation of input 1 is ") != std::string::npos);
  }
  SECTION("a mean that is not finite") {
    facts.mean[0] = std::numeric_limits<double>::infinity();
    CHECK(Refusal(facts).find("normalisation of input 0 is inf") != std::string::npos);
  }
  SECTION("labels twice, or out of order") {
    facts.labels = GENERATE(std::vector<int64_t>{1, 1}, std::vector<int64_t>{2, 1});
    CHECK(Refusal(facts).find("labels do not ascend") != std::string::npos);
  }
  SECTION("a kind of values that there is none of") {
    TensorMetadata metadata = FactMetadata(facts);
    metadata["values"] = "words";
    const auto read = ReadBack(facts, metadata);
    CHECK(absl::IsInvalidArgument(read.status()));
    CHECK(read.status().message().find("values is \"words\", want bytes or numbers") !=
          absl::string_view::npos);
  }
  SECTION("sums that are no sums") {
    TensorMetadata metadata = FactMetadata(facts);
    metadata[GENERATE("train_sum", "facts_xxh3")] = "12";
    const auto read = ReadBack(facts, metadata);
    CHECK(absl::IsInvalidArgument(read.status()));
    CHECK(read.status().message().find("want 16 hexadecimal digits") != absl::string_view::npos);
  }
}

TEST_CASE("a checkpoint has those of its lowest rank, and constants where any has them",
          "[model_facts]") {
  ModelFacts first = Facts(), second = Facts();
  second.train_sum = 5;
  SECTION("both have constants") { second.norm_constants = {9, 9, 9, 9}; }
  SECTION("the second alone has") { first.norm_constants.clear(); }
  const auto checkpoint =
      Checkpoint::Open(SaveCheckpoint(first, second) + "/" + StepFolderName(400));
  REQUIRE(checkpoint.ok());
  const auto read = ReadFacts(**checkpoint);
  REQUIRE(read.ok());
  CHECK((*read)->train_sum == first.train_sum);
  CHECK((*read)->norm_constants == std::vector<float>{1, 2, 3, 4});
}

TEST_CASE("a job that goes on finds them in the newest checkpoint that can be read",
          "[model_facts]") {
  const std::string folder = SaveCheckpoint(Facts(), Facts());
  CHECK(FactsToGoOnFrom(folder)->ReadsAs(Facts()));
  CHECK(FactsToGoOnFrom(folder + "/" + StepFolderName(400))->ReadsAs(Facts()));
  std::filesystem::create_directory(folder + "/" + StepFolderName(500));
  WriteText(folder + "/" + StepFolderName(500) + "/" + kManifestName, "{");
  CHECK(FactsToGoOnFrom(folder)->ReadsAs(Facts()));
  CHECK_FALSE(FactsToGoOnFrom(folder + "/" + StepFolderName(500)).has_value());
  CHECK_FALSE(FactsToGoOnFrom("").has_value());
  CHECK_FALSE(FactsToGoOnFrom(folder + "/none").has_value());
}

}  // namespace
}  // namespace tessera
