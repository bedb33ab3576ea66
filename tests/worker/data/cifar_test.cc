#include "worker/data/cifar.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "tests/worker/data/files.h"

namespace tessera {
namespace {

TableSpec Spec() {
  TableSpec spec;
  spec.features = 3072;
  spec.classes = 10;
  return spec;
}

TEST_CASE("records of several files follow one another", "[cifar]") {
  const auto table = ReadCifar({WriteFile("a.bin", CifarRecord(3, 0) + CifarRecord(9, 1)),
                                WriteFile("b.bin.gz", Gzip(CifarRecord(0, 200)))},
                               Spec());
  REQUIRE(table.ok());
  REQUIRE(table->rows == 3);
  REQUIRE(std::get<Classes>(table->labels) == Classes{3, 9, 0});
  REQUIRE(Row(*table, 1)[0] == 1);
  REQUIRE(Row(*table, 1)[255] == 0);
  REQUIRE(Row(*table, 2)[3071] == (200 + 3071) % 256);
}

TEST_CASE("a record that is cut or has a label too high is named with its byte", "[cifar]") {
  const std::string path =
      WriteFile("cut.bin", CifarRecord(1, 0) + CifarRecord(2, 0).substr(0, 3072));
  REQUIRE(Text(ReadCifar({path}, Spec()).status()) ==
          path + ": byte 3073: row 1 has 3072 bytes, want 3073");
  WriteFile("cut.bin", CifarRecord(1, 0) + CifarRecord(10, 0));
  REQUIRE(Text(ReadCifar({path}, Spec()).status()) ==
          path +
              ": byte 3073: label of row 1 is 10, want 0 to 9 (the model's classes); the labels "
              "go from 1 to 10, so they seem to start at 1: subtract 1 from each");
  WriteFile("cut.bin", CifarRecord(0, 0) + CifarRecord(10, 0));
  REQUIRE(Text(ReadCifar({path}, Spec()).status()) ==
          path + ": byte 3073: label of row 1 is 10, want 0 to 9 (the model's classes)");
}

// A record of CIFAR-100: coarse, fine and the pixels of CifarRecord.
std::string TwoLabels(int coarse, int fine, int first) {
  return static_cast<char>(coarse) + CifarRecord(fine, first);
}

TEST_CASE("records of two labels give the fine or the coarse one", "[cifar]") {
  TableSpec spec = Spec();
  spec.classes = 100;
  const std::string path = WriteFile("two.bin", TwoLabels(19, 99, 0) + TwoLabels(3, 42, 7));
  const auto fine = ReadCifar({path}, spec, CifarLabels::kFine);
  REQUIRE(std::get<Classes>(fine->labels) == Classes{99, 42});
  REQUIRE(Row(*fine, 1)[0] == 7);
  REQUIRE(Row(*fine, 1)[3071] == (7 + 3071) % 256);
  const std::string zipped = WriteFile("two.bin.gz", Gzip(TwoLabels(19, 99, 0)));
  spec.classes = 20;
  REQUIRE(std::get<Classes>(ReadCifar({path, zipped}, spec, CifarLabels::kCoarse)->labels) ==
          Classes{19, 3, 19});
  REQUIRE(Text(ReadCifar({path}, spec, CifarLabels::kFine).status()) ==
          path + ": byte 0: label of row 0 is 99, want 0 to 19 (the model's classes)");
}

TEST_CASE("records of the other kind are told by the length of their file", "[cifar]") {
  TableSpec spec = Spec();
  spec.classes = 256;
  const std::string two = TwoLabels(1, 2, 0) + TwoLabels(3, 4, 9) + TwoLabels(5, 6, 9);
  const std::string one = CifarRecord(1, 0) + CifarRecord(2, 0);
  const auto told = [&](const std::string& path, CifarLabels labels, const char* advice) {
    for (const int64_t classes : {1, 256}) {
      CAPTURE(path, classes);
      spec.classes = classes;
      REQUIRE(Text(ReadCifar({path}, spec, labels).status()).find(advice) != std::string::npos);
    }
  };
  const char kTwo[] =
      "; its records seem to have two label bytes, as CIFAR-100 has them: set "
      "data.labels to fine or coarse";
  told(WriteFile("other.bin", two), CifarLabels::kOne, kTwo);
  told(WriteFile("other.bin.gz", Gzip(two)), CifarLabels::kOne, kTwo);
  const char kOne[] =
      "; its records seem to have one label byte, as CIFAR-10 has it: leave "
      "data.labels out";
  told(WriteFile("other.bin", one), CifarLabels::kFine, kOne);
  told(WriteFile("other.bin.gz", Gzip(one)), CifarLabels::kCoarse, kOne);
}

TEST_CASE("an input of 3072 values whose order is not that of the records is refused", "[cifar]") {
  TableSpec spec = Spec();
  const std::string path = WriteFile("shape.bin", CifarRecord(1, 0));
  for (const std::vector<int64_t>& input :
       {std::vector<int64_t>{3, 32, 32}, {3072}, {3, 1024}, {96, 32}}) {
    spec.input = input;
    REQUIRE(ReadCifar({path}, spec).ok());
  }
  spec.input = {32, 32, 3};
  REQUIRE(Text(ReadCifar({path}, spec).status())
              .find("data.format cifar: rows are [3, 32, 32], "
                    "want [32, 32, 3]") == 0);
}

TEST_CASE("a model with another input size is named with both sizes", "[cifar]") {
  TableSpec spec = Spec();
  spec.features = 1024;
  REQUIRE(Text(ReadCifar({"/nonexistent"}, spec).status()) ==
          "data.format cifar: row size is 3072, want 1024, the product of model.input");
}

TEST_CASE("records beyond the memory limit are refused", "[cifar]") {
  TableSpec spec = Spec();
  spec.bytes_max = 3072 + 4;
  REQUIRE(ReadCifar({WriteFile("one.bin", CifarRecord(1, 0))}, spec).ok());
  REQUIRE(ReadCifar({WriteFile("two.bin", CifarRecord(1, 0) + CifarRecord(1, 0))}, spec)
              .status()
              .code() == absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace tessera
