// Reading a checkpoint of any number of servers by rows, and what broken ones do: nothing.
#include "common/checkpoint/checkpoint.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <memory>

#include "common/base/philox.h"
#include "common/base/sanitizer.h"
#include "common/checkpoint/slices.h"
#include "common/layout/shard_map.h"
#include "tests/common/checkpoint/saved_model.h"

namespace tessera {
namespace {

TEST_CASE("the rows of a shard are those of the layout", "[checkpoint]") {
  ModelShape shape;
  for (const int64_t rows : {1, 2, 7, 64, 1000}) {
    ParameterSpec spec;
    spec.name = std::to_string(rows);
    spec.rows = rows;
    spec.columns = 3;
    shape.parameters.push_back(spec);
  }
  for (const int shards : {1, 2, 3, 7, 256}) {
    for (int s = 0; s < shards; ++s) {
      for (const Slice& slice : SlicesOf(shape, ShardId(static_cast<uint64_t>(s)), shards).slices) {
        const ShardRows rows = RowsOf(shape.parameters[static_cast<size_t>(slice.parameter)].rows,
                                      s, Owners{0, shards});
        CHECK(rows.begin == slice.row_begin);
        CHECK(rows.end == slice.row_end);
      }
    }
  }
}

TEST_CASE("any rows are found in the files of any number of servers, each once", "[checkpoint]") {
  for (const int64_t rows : {0, 1, 2, 5, 17}) {
    for (const Owners& owners :
         {Owners{0, 1}, Owners{0, 2}, Owners{1, 2}, Owners{3, 8}, Owners{0, 20}}) {
      for (int64_t begin = 0; begin <= rows; ++begin) {
        for (int64_t end = begin; end <= rows; ++end) {
          int64_t next = begin;
          for (const SavedRows& run : SavedRowsOf(rows, owners, begin, end)) {
            const ShardRows owned = RowsOf(rows, run.shard, owners);
            CHECK(run.row_count > 0);
            CHECK(owned.begin + run.row_begin == next);
            next += run.row_count;
            CHECK(next <= owned.end);
          }
          CHECK(next == end);
        }
      }
    }
  }
}

TEST_CASE("counters of servers are taken over by fewer and by more", "[checkpoint]") {
  const std::vector<CheckpointShard> saved = {
      {5, 100, 10, 4, 2, {8, 2}}, {6, 90, 20, 1, 1, {19, 1, 0}}, {4, 80, 30, 0, 0, {30}}};
  const CheckpointShard first = CountersFor(saved, 0, 2);
  CHECK(first.version == 6);
  // What all of them have, as its rows are of several.
  CHECK(first.examples == 80);
  CHECK(first.pushes == 40);
  CHECK(first.staleness == std::vector<uint64_t>{38, 2});
  CHECK(CountersFor(saved, 1, 2).pushes == 20);
  CHECK(CountersFor(saved, 4, 5).pushes == 0);
  CHECK(CountersFor(saved, 4, 5).version == 6);
}

TEST_CASE("servers that are as many as were saved take over each its own counters",
          "[checkpoint]") {
  const std::vector<CheckpointShard> saved = {
      {5, 100, 10, 4, 2, {8, 2}}, {6, 90, 20, 1, 1, {19, 1}}, {4, 80, 30, 0, 0, {30}}};
  for (int64_t s = 0; s < 3; ++s) {
    const CheckpointShard& own = saved[static_cast<size_t>(s)];
    const CheckpointShard counters = CountersFor(saved, s, 3);
    CHECK(counters.version == own.version);
    CHECK(counters.examples == own.examples);
    CHECK(counters.pushes == own.pushes);
    CHECK(counters.staleness_sum == own.staleness_sum);
    CHECK(counters.staleness_max == own.staleness_max);
    CHECK(counters.staleness == own.staleness);
  }
}

TEST_CASE("a checkpoint of any number of servers reads the same", "[checkpoint]") {
  for (const int64_t shards : {1, 2, 3, 9}) {
    const std::string folder = EmptyFolder();
    SaveCheckpoint(folder, shards);
    const auto checkpoint = Checkpoint::Open(folder);
    REQUIRE(checkpoint.ok());
    CHECK((*checkpoint)->VerifySums().ok());
    CHECK(HasSavedValues(**checkpoint));
    std::vector<float> rows(3 * 5);
    REQUIRE((*checkpoint)->ReadRows(0, 1, 2, 5, rows.data()).ok());
    CHECK(rows[0] == SavedValue((*checkpoint)->manifest(), 0, 1, 2, 0));
    CHECK(rows[14] == SavedValue((*checkpoint)->manifest(), 0, 1, 4, 4));
    REQUIRE((*checkpoint)->OpenWorker(0).ok());
    CHECK(*(*checkpoint)->OpenWorker(0) == nullptr);
  }
}

TEST_CASE("a checkpoint whose servers share some of the parameters reads the same",
          "[checkpoint]") {
  const std::string folder = EmptyFolder();
  Manifest manifest = ManifestOf(5);
  manifest.parameters[0].owners = {0, 3};
  manifest.parameters[1].owners = manifest.parameters[2].owners = {3, 5};
  REQUIRE(SaveShards(folder, &manifest).ok());
  WriteManifest(folder, manifest);
  CHECK(ShardTensors(manifest, 0).size() == 3);  // It, and two states.
  CHECK(ShardTensors(manifest, 4).size() == 6);
  const auto checkpoint = Checkpoint::Open(folder);
  INFO(checkpoint.status());
  REQUIRE(checkpoint.ok());
  CHECK(HasSavedValues(**checkpoint));
}

TEST_CASE("a shard's file that is another's, gone or short is named", "[checkpoint]") {
  const std::string folder = EmptyFolder();
  SaveCheckpoint(folder, 2);
  const std::string second = folder + "/shard-1-of-2.safetensors";
  const std::string whole = TextOf(second);
  const auto error = [&] {
    const auto opened = Checkpoint::Open(folder);
    return opened.ok() ? std::string() : std::string(opened.status().message());
  };
  WriteText(second, TextOf(folder + "/shard-0-of-2.safetensors"));
  CHECK_THAT(error(), Catch::StartsWith("\"" + second + "\": is "));
  WriteText(second, whole + "x");
  CHECK_THAT(error(), Catch::Contains("bytes, but the tensors fill"));
  REQUIRE(unlink(second.c_str()) == 0);
  CHECK(error() == "checkpoint: \"" + second + "\" cannot be read: No such file or directory");
  CHECK(Checkpoint::Open(folder + "/none").status().code() == absl::StatusCode::kNotFound);

  std::string changed = whole;
  changed.back() = static_cast<char>(changed.back() ^ 1);
  WriteText(second, changed);
  const auto opened = Checkpoint::Open(folder);
  REQUIRE(opened.ok());
  CHECK_THAT(std::string((*opened)->VerifySums().message()),
             Catch::StartsWith("\"" + second + "\": sum is "));
  // Whoever reads no row of it need not know.
  const int64_t rows = (*opened)->manifest().parameters[0].rows;
  const auto always = [] { return true; };
  CHECK((*opened)->VerifyRows({}, always).ok());
  CHECK((*opened)->VerifyRows({{0, 0, rows / 2}}, always).ok());
  CHECK_THAT(std::string((*opened)->VerifyRows({{0, 0, 1}, {0, rows - 1, rows}}, always).message()),
             Catch::StartsWith("\"" + second + "\": sum is "));
  CHECK(absl::IsCancelled((*opened)->VerifyRows({{0, 0, 1}}, [] { return false; })));
}

// Any byte changed, cut off or put in, anywhere in the files: an error.
TEST_CASE("no change to a checkpoint's bytes goes unnoticed", "[checkpoint][fuzz]") {
  const std::string folder = EmptyFolder();
  SaveCheckpoint(folder, 2);
  // What a lie about sizes would have to take. Sanitizers take far more addresses themselves.
  struct rlimit memory = {size_t{3} << 30, size_t{3} << 30};
  if (!kHasSanitizer) REQUIRE(setrlimit(RLIMIT_AS, &memory) == 0);
  const std::string names[] = {kManifestName, "shard-0-of-2.safetensors",
                               "shard-1-of-2.safetensors"};
  int64_t refused = 0;
  for (int round = 0; round < 3000; ++round) {
    const auto dice = Philox(7, Stream::kDropout, static_cast<uint64_t>(round), 0);
    const std::string& path = folder + "/" + names[dice[0] % 3];
    const std::string whole = TextOf(path);
    std::string changed = whole;
    // Headers are where bytes mean something.
    const size_t range = dice[1] % 4 == 0 ? whole.size() : std::min<size_t>(whole.size(), 900);
    const size_t at = dice[2] % range;
    switch (dice[1] / 4 % 5) {
      case 0:
        changed[at] = static_cast<char>(dice[3]);
        break;
      case 1:
        changed.resize(at);
        break;
      case 2:
        changed.insert(at, 1 + dice[3] % 9, static_cast<char>("0[{\"9,:]}"[dice[3] % 9]));
        break;
      case 3:
        changed.erase(at, 1 + dice[3] % 16);
        break;
      default:
        changed[at] = static_cast<char>(changed[at] ^ (1 << dice[3] % 8));
        break;
    }
    WriteText(path, changed);
    const auto checkpoint = Checkpoint::Open(folder);
    const absl::Status status = checkpoint.ok() ? (*checkpoint)->VerifySums() : checkpoint.status();
    if (changed == whole) {
      CHECK(status.ok());
    } else {
      ++refused;
      CHECK_FALSE(status.ok());
      CHECK_THAT(std::string(status.message()), Catch::Contains(folder));
    }
    WriteText(path, whole);
  }
  CHECK(refused > 2500);
}

}  // namespace
}  // namespace tessera
