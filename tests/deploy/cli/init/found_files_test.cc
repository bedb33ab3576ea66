#include "deploy/cli/init/found_files.h"

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <string>

#include "tests/worker/data/files.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

// A new folder with these files.
std::string FolderOf(const std::string& name,
                     const std::vector<std::pair<std::string, std::string>>& files) {
  const fs::path folder = fs::path(WriteFile(name + "_", "")).replace_filename(name);
  fs::remove_all(folder);
  for (const auto& [path, bytes] : files) {
    fs::create_directories((folder / path).parent_path());
    std::ofstream(folder / path, std::ios::binary) << bytes;
  }
  return folder.string();
}

std::string Images(int rows) {
  return Idx(8, {static_cast<uint32_t>(rows), 8, 8}, std::string(64 * rows, 'x'));
}

TEST_CASE("a file's format is told by what it begins with", "[cli][init]") {
  const auto format = [](const std::string& name, const std::string& bytes) {
    return FormatOfFile(WriteFile(name, bytes)).value();
  };
  CHECK(format("a", Images(2)) == "idx");
  CHECK(format("a.gz", Gzip(Images(2))) == "idx");
  CHECK(format("a.npy", Npy("|u1", "(2, 2)", "abcd")) == "npy");
  CHECK(format("a.csv", "x,y,label\n1,2,0\n") == "csv");
  CHECK(format("table", "1,2,0\n3,4,1\n") == "csv");
  CHECK(format("a9a", "-1 3:1 11:1\n+1 5:1\n") == "libsvm");
  CHECK(format("sets", "1,2 3:0.5\n0 5:1\n") == "libsvm");
  CHECK(format("xc.txt", "2 10 3\n0,2 1:0.5 3:1\n1 2:1\n") == "xc");
  CHECK(format("a.bin", CifarRecord(3, 200) + CifarRecord(4, 100)) == "cifar");
  CHECK(format("words.txt", "To be, or not to be,\nthat is the question.\n") == "text");
  CHECK(format("tokens.bin", std::string("\x01\x00\x02\x00", 4)) == "tokens");
  CHECK(format("empty", "").empty());
  CHECK(format("other", std::string("\x01\x00\xff\xfe", 4)).empty());
}

TEST_CASE("which rows a file has is told by a word of its name", "[cli][init]") {
  for (const char* name : {"test.csv", "t10k-images-idx3-ubyte.gz", "x_test.npy", "a9a.t",
                           "a9a.t.gz", "test_batch.bin"}) {
    CHECK(KindOfName(name) == RowsKind::kTest);
  }
  CHECK(KindOfName("val") == RowsKind::kValidation);
  CHECK(KindOfName("digits.validation.csv") == RowsKind::kValidation);
  CHECK(KindOfName("x_train.npy") == RowsKind::kTraining);
  for (const char* name : {"contest.csv", "values.csv", "latest", "data_batch_1.bin"}) {
    CHECK(KindOfName(name) == RowsKind::kUnknown);
  }
}

TEST_CASE("beside files that say which rows they have others are left out", "[cli][init]") {
  const std::string table = "1,2,0\n3,4,1\n";
  const std::string folder = FolderOf(
      "many",
      {{"train.csv", table}, {"val.csv", table}, {"test.csv", table}, {"means.csv", table}});
  const FoundFiles found = FindDataFiles({folder}).value();
  CHECK(found.train == std::vector<std::string>{folder + "/train.csv"});
  CHECK(found.test == std::vector<std::string>{folder + "/test.csv"});
}

TEST_CASE("a folder's files are dealt to training and test, features and labels", "[cli][init]") {
  const std::string labels = Idx(8, {2}, std::string("\x00\x01", 2));
  const std::string folder = FolderOf("mnist", {{"train-images", Images(2)},
                                                {"train-labels", labels},
                                                {"t10k-images", Images(2)},
                                                {"t10k-labels", labels},
                                                {"README.md", "1,2\n3,4\n"},
                                                {"all.csv", "1,2,0\n3,4,1\n"}});
  const FoundFiles found = FindDataFiles({folder}).value();
  CHECK(found.format == "idx");
  CHECK(found.train == std::vector<std::string>{folder + "/train-images"});
  CHECK(found.train_labels == std::vector<std::string>{folder + "/train-labels"});
  CHECK(found.test == std::vector<std::string>{folder + "/t10k-images"});
  CHECK(found.test_labels == std::vector<std::string>{folder + "/t10k-labels"});
  CHECK_FALSE(found.has_no_test);
  const FoundFiles one = FindDataFiles({folder + "/all.csv"}).value();
  CHECK(one.format == "csv");
  CHECK(one.has_no_test);
  CHECK(one.test == one.train);
}

TEST_CASE("pictures lie in a folder for each class", "[cli][init]") {
  const std::string folder = FolderOf(
      "ants", {{"train/ants/1.jpg", "x"}, {"train/bees/2.png", "x"}, {"val/ants/3.jpg", "x"}});
  const FoundFiles found = FindDataFiles({folder}).value();
  CHECK(found.format == "images");
  CHECK(found.train == std::vector<std::string>{folder + "/train"});
  CHECK(found.test == std::vector<std::string>{folder + "/val"});
}

TEST_CASE("where there is no data it is told what was seen, and which formats there are",
          "[cli][init]") {
  const std::string folder =
      FolderOf("none", {{"notes.md", "hello"}, {"odd", std::string("\x01\x00\xff", 3)}});
  const auto found = FindDataFiles({folder});
  CHECK(
      found.status().message() ==
      "no data in " + folder +
          ": saw notes.md, odd, want files of idx, csv, libsvm, xc, cifar, npy, images, tokens or "
          "text (docs/operating/data.md says what each is; pictures lie in a folder for each "
          "class)");
  CHECK(absl::IsNotFound(FindDataFiles({folder + "/nowhere"}).status()));
}

}  // namespace
}  // namespace tessera
