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

// The first row of missing values was skipped as a header.
TEST_CASE("a first row of missing values is refused as the same row elsewhere", "[csv]") {
  for (const std::string row : {"?,?,?", "NA,NA,NA", ",,", " , , ", "nan,NaN,NAN", "null,None,-",
                                "inf,-inf,1e999", "N/A,#N/A,<NA>", "\"?\",\"\",'NA'"}) {
    CAPTURE(row);
    const std::string first = Wrong(row + "\n1,2,0\n"), second = Wrong("1,2,0\n" + row + "\n");
    REQUIRE(first.find(":1: field 1 is \"") == 0);
    REQUIRE(second.find(":2: field 1 is \"") == 0);
    REQUIRE(first.substr(3) == second.substr(3));
  }
}

TEST_CASE("a first line with names and fields without is told what a header is", "[csv]") {
  REQUIRE(Wrong(",b,c\n1,2,0\n") ==
          ":1: field 1 is \"\", want a finite number; a header has a name in every field");
  REQUIRE(Wrong("a,?,c\n1,2,0\n") ==
          ":1: field 1 is \"a\", want a finite number; a header has a name in every field");
  REQUIRE(Read("\"a\", 'b' ,\"c\"\n1,2,0\n")->rows == 1);
  REQUIRE(Read("# a,b,c\n1,2,0\n")->rows == 1);
  REQUIRE(Read("a table\n1,2,0\n")->rows == 1);
  REQUIRE(Read("# written by hand, or so\n1,2,0\n")->rows == 1);
  REQUIRE(Wrong("a,b\n1,2,0\n") ==
          ":1: header has 2 fields, want 3 (the product of model.input is 2, and the label)");
}

TEST_CASE("a first line that counts its fields is no row", "[csv]") {
  TableSpec spec;
  spec.features = 5;
  spec.classes = 10;
  const auto read = [&](absl::string_view text) {
    return Text(ReadCsv({WriteFile("counted.csv", text)}, spec).status());
  };
  REQUIRE(read("0,1,2,3,4,5\n7,7,7,7,7,1\n")
              .find(":1: line counts its fields from 0, as pandas does") != std::string::npos);
  REQUIRE(read("7,7,7,7,7,1\n0,1,2,3,4,5\n").empty());
  REQUIRE(read("0,1,2,3,4,6\n").empty());
  REQUIRE(Read("0,1,2\n").ok());
}

TEST_CASE("semicolons and tabs between fields are told", "[csv]") {
  REQUIRE(
      Wrong("1;2;0\n3;4;1\n") ==
      ":2: line has 1 fields, want 3 (the product of model.input is 2, then the label); between "
      "its fields are semicolons, want commas");
  REQUIRE(Wrong("a\tb\tc\n1\t2\t0\n").find("; between its fields are tabs, want commas") !=
          std::string::npos);
}

absl::StatusOr<Table> ReadBy(const std::string& label_column, std::vector<std::string> texts) {
  TableSpec spec;
  spec.features = 2;
  spec.classes = 3;
  CsvColumns columns(label_column);
  std::vector<std::string> paths;
  for (const std::string& text : texts) {
    paths.push_back(WriteFile("part" + std::to_string(paths.size()) + ".csv", text));
  }
  return ReadCsv(paths, spec, &columns);
}

// The last column was taken for the label, whatever the header said.
TEST_CASE("a header that names another field the label is refused, with the key that says which",
          "[csv]") {
  for (const std::string name : {"label", "Label", "\"class\"", "TARGET", "y", "labels"}) {
    CAPTURE(name);
    for (const std::string header : {name + ",a,b", "a," + name + ",b"}) {
      const std::string message = Wrong(header + "\n1,2,0\n");
      REQUIRE(message.find(":1: header has \"") == 0);
      REQUIRE(
          message.find("\" and ends with \"b\", and the last field would be taken for the label; "
                       "set data.label_column to ") != std::string::npos);
    }
    REQUIRE(Read("a,b," + name + "\n1,2,0\n").ok());
  }
  REQUIRE(Read("x,y,kind\n1,2,0\n").ok());
  REQUIRE(Read("y,label,class\n1,2,0\n").ok());
  REQUIRE(Wrong("# label,a,b\n1,2,0\n").find(":1: header has \"label\"") == 0);
}

TEST_CASE("data.label_column says which field is the label", "[csv]") {
  const auto first = ReadBy("first", {"2,0.5,7\n1,3,4\n"});
  REQUIRE(std::get<Classes>(first->labels) == Classes{2, 1});
  REQUIRE(std::get<F32Values>(first->values) == Floats{0.5f, 7, 3, 4});
  const auto named = ReadBy("kind", {"a,kind,b\n0.5,2,7\n", "a,\"kind\",b\n3,1,4\n"});
  REQUIRE(std::get<Classes>(named->labels) == Classes{2, 1});
  REQUIRE(std::get<F32Values>(named->values) == Floats{0.5f, 7, 3, 4});
  // The header may be wrong about it.
  REQUIRE(std::get<Classes>(ReadBy("last", {"label,a,b\n5,6,1\n"})->labels) == Classes{1});
  REQUIRE(std::get<Classes>(ReadBy("first", {"a,b,label\n1,6,5\n"})->labels) == Classes{1});
  REQUIRE(Text(ReadBy("first", {"3,1,2\n"}).status())
              .find(":1: label is \"3\", want an integer from 0 to 2") != std::string::npos);
}

TEST_CASE("a name that a file's header has not, or has twice, is refused", "[csv]") {
  REQUIRE(Text(ReadBy("kind", {"a,b,c\n1,2,0\n"}).status())
              .find("part0.csv:1: header is \"a,b,c\", want one with the name \"kind\", as "
                    "data.label_column says") != std::string::npos);
  REQUIRE(Text(ReadBy("kind", {"1,2,0\n"}).status())
              .find("part0.csv:1: file has no header, want one with the name \"kind\"") !=
          std::string::npos);
  REQUIRE(Text(ReadBy("kind", {"a,b,kind\n1,2,0\n", "1,2,0\n"}).status())
              .find("part1.csv:1: file has no header") != std::string::npos);
  REQUIRE(Text(ReadBy("kind", {"kind,b,kind\n1,2,0\n"}).status())
              .find("want one with the name \"kind\" once") != std::string::npos);
}

TEST_CASE("files whose headers have the columns in another order are refused", "[csv]") {
  REQUIRE(Text(ReadBy("", {"a,b,label\n1,2,0\n", "b,a,label\n1,2,0\n"}).status())
              .find("part1.csv:1: header has \"b\" as field 1, want it as field 2, where ") !=
          std::string::npos);
  REQUIRE_FALSE(ReadBy("kind", {"a,b,kind\n1,2,0\n", "kind,a,b\n0,1,2\n"}).ok());
  REQUIRE(ReadBy("", {"a,b,label\n1,2,0\n", "1,2,0\n", "a,c,label\n1,2,0\n"}).ok());
  REQUIRE(ReadBy("", {"v,v,label\n1,2,0\n", "v,v,label\n1,2,0\n"}).ok());
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
