#include "worker/data/cifar.h"

#include <catch2/catch.hpp>
#include <string>

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
          path + ": byte 3073: label of row 1 is 10, want 0 to 9 (the model's classes)");
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
