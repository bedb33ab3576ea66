#include "worker/data/csv.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "tests/worker/data/files.h"

namespace tessera {
namespace {

using Floats = std::vector<float>;

absl::StatusOr<Table> Read(absl::string_view text, int64_t bytes_max = kDatasetBytesMax) {
  TableSpec spec;
  spec.features = 2;
  spec.classes = 3;
  spec.bytes_max = bytes_max;
  return ReadCsv({WriteFile("table.csv", text)}, spec);
}

std::string Wrong(absl::string_view text) {
  const std::string path = WriteFile("table.csv", "");
  std::string message = Text(Read(text).status());
  REQUIRE(message.substr(0, path.size()) == path);
  return message.substr(path.size());
}

TEST_CASE("the features come first and the label is last", "[csv]") {
  const auto table = Read("1,2,0\n-0.5,1e3,2\n");
  REQUIRE(table.ok());
  REQUIRE(std::get<F32Values>(table->values) == Floats{1, 2, -0.5f, 1000});
  REQUIRE(std::get<Classes>(table->labels) == Classes{0, 2});
  REQUIRE(table->rows == 2);
}

TEST_CASE("a header, white space, CRLF and blank lines do not matter", "[csv]") {
  const auto plain = Read("1,2,0\n3,4,2\n");
  const auto decorated = Read("width , height,kind\r\n 1,\t2 ,0\r\n\r\n3,4, 2.0");
  REQUIRE(decorated.ok());
  REQUIRE(std::get<F32Values>(decorated->values) == std::get<F32Values>(plain->values));
  REQUIRE(std::get<Classes>(decorated->labels) == std::get<Classes>(plain->labels));
}

TEST_CASE("a label may be written as np.savetxt writes it", "[csv]") {
  const auto table = Read(
      "1.000000000000000000e+00,2e0,2.000000000000000000e+00\n1,2,0.000000000000000000e+00\n"
      "1,2,+1E0\n1,2,20e-1\n");
  REQUIRE(table.ok());
  REQUIRE(std::get<Classes>(table->labels) == Classes{2, 0, 1, 2});
  for (const std::string label : {"1.5e+00", "3e0", "-1e0", "1e", "e1", "1e400", "1e-400", "nane",
                                  "0x1e0", "+-1e0", "1e0 x", "9e15"}) {
    REQUIRE(Wrong("1,2," + label + "\n").find(":1: label is \"" + label + "\"") == 0);
  }
}

TEST_CASE("only a first line without any number is a header", "[csv]") {
  REQUIRE(Wrong("1,x,0\n1,2,0\n") == ":1: field 2 is \"x\", want a finite number");
  REQUIRE(Wrong("1,2,0\na,b,c\n") == ":2: field 1 is \"a\", want a finite number");
  REQUIRE(Wrong("a,b,c\na,b,c\n1,2,0\n") == ":2: field 1 is \"a\", want a finite number");
}

TEST_CASE("a malformed line is named with what it has and what is wanted", "[csv]") {
  REQUIRE(Wrong("1,2,0\n1,2\n") ==
          ":2: line has 2 fields, want 3 (the product of model.input is 2, then the label)");
  REQUIRE(Wrong("1,2,3,0\n").find(":1: line has 4 fields, want 3") == 0);
  REQUIRE(Wrong("1,2,0\n\n1,,0\n") == ":3: field 2 is \"\", want a finite number");
  REQUIRE(Wrong("1,nan,0\n") == ":1: field 2 is \"nan\", want a finite number");
  REQUIRE(Wrong("1,\"2\",0\n") == ":1: field 2 is \"\\\"2\\\"\", want a finite number");
  REQUIRE(Wrong("1,2,3\n") ==
          ":1: label is \"3\", want an integer from 0 to 2 (the model's classes)");
  REQUIRE(Wrong("1,2,-1\n").find(":1: label is \"-1\"") == 0);
  REQUIRE(Wrong("1,2,0.5\n").find(":1: label is \"0.5\"") == 0);
  REQUIRE(Wrong("1,2,\n").find(":1: label is \"\"") == 0);
}

TEST_CASE("a line without end is refused by its length", "[csv]") {
  REQUIRE(Wrong(std::string(1 << 20, '1')).find(":1: the line is longer than ") == 0);
}

TEST_CASE("files are read one after the other and each may have a header", "[csv]") {
  TableSpec spec;
  spec.features = 2;
  spec.classes = 3;
  const auto table = ReadCsv(
      {WriteFile("a.csv", "x,y,l\n1,2,0\n"), WriteFile("b.csv.gz", Gzip("x,y,l\n3,4,1"))}, spec);
  REQUIRE(table.ok());
  REQUIRE(std::get<F32Values>(table->values) == Floats{1, 2, 3, 4});
}

TEST_CASE("a csv table beyond the memory limit is refused at its first row too many", "[csv]") {
  REQUIRE(Read("1,2,0\n1,2,0\n", 24).ok());
  const auto table = Read("1,2,0\n1,2,0\n", 23);
  REQUIRE(table.status().code() == absl::StatusCode::kResourceExhausted);
  REQUIRE(Text(table.status()).find("table.csv:2: ") != std::string::npos);
}

}  // namespace
}  // namespace tessera
