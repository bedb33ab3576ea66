#include "worker/data/xc.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "tests/worker/data/files.h"

namespace tessera {
namespace {

TableSpec Spec(bool class_sets = true) {
  TableSpec spec;
  spec.features = 4;
  spec.classes = 3;
  spec.class_sets = class_sets;
  return spec;
}

absl::StatusOr<Table> Read(absl::string_view text, const TableSpec& spec = Spec()) {
  return ReadXc({WriteFile("rows.txt", text)}, spec);
}

// The message behind the file's name.
std::string Wrong(absl::string_view text, const TableSpec& spec = Spec()) {
  const std::string path = WriteFile("rows.txt", "");
  const std::string message = Text(Read(text, spec).status());
  REQUIRE(message.substr(0, path.size()) == path);
  return message.substr(path.size());
}

TEST_CASE("rows are stored as they are written: labels and entries, in order", "[xc]") {
  const auto table = Read("3 4 3\n0,2 0:1 3:-0.5\n1 2:2e1\n2,1 1:0.25 2:1\n");
  REQUIRE(table.ok());
  REQUIRE(table->rows == 3);
  REQUIRE(table->features == 4);
  REQUIRE(table->always_sparse);
  const auto& values = std::get<SparseValues>(table->values);
  REQUIRE(values.begin == std::vector<int64_t>{0, 2, 3, 5});
  REQUIRE(values.feature == std::vector<uint32_t>{0, 3, 2, 1, 2});
  REQUIRE(values.value == std::vector<float>{1, -0.5f, 20, 0.25f, 1});
  const auto& labels = std::get<ClassSets>(table->labels);
  REQUIRE(labels.begin == std::vector<int64_t>{0, 2, 3, 5});
  REQUIRE(labels.classes == std::vector<int32_t>{0, 2, 1, 1, 2});
}

TEST_CASE("a row may lack labels, entries, or both", "[xc]") {
  const auto table = Read("5 4 3\n 1:1\n2\n\n 0:1 2:1\n1 \n");
  REQUIRE(table.ok());
  REQUIRE(std::get<SparseValues>(table->values).begin == std::vector<int64_t>{0, 1, 1, 1, 3, 3});
  REQUIRE(std::get<ClassSets>(table->labels).begin == std::vector<int64_t>{0, 0, 1, 1, 1, 2});
  REQUIRE(std::get<ClassSets>(table->labels).classes == std::vector<int32_t>{2, 1});
}

TEST_CASE("a gzip file, CRLF, more spaces, a last line without end and written zeros do not matter",
          "[xc]") {
  const std::string text = " 2  4 3 \r\n0,2  1:1\t3:0 \r\n1 2:2";
  for (const std::string& path : {WriteFile("a.txt", text), WriteFile("a.txt.gz", Gzip(text))}) {
    const auto table = ReadXc({path}, Spec());
    REQUIRE(table.ok());
    REQUIRE(table->rows == 2);
    REQUIRE(std::get<SparseValues>(table->values).feature == std::vector<uint32_t>{1, 2});
  }
}

TEST_CASE("files follow one another, each with its header", "[xc]") {
  const auto table =
      ReadXc({WriteFile("a.txt", "1 4 3\n0 1:1\n"), WriteFile("b.txt", "2 4 3\n1 2:1\n2 3:1\n\n")},
             Spec());
  REQUIRE(table.ok());
  REQUIRE(table->rows == 3);
  REQUIRE(std::get<ClassSets>(table->labels).classes == std::vector<int32_t>{0, 1, 2});
}

TEST_CASE("a header that is not the model's is told both numbers", "[xc]") {
  REQUIRE(Wrong("1 5 3\n0 1:1\n") ==
          ":1: header says 5 features, want 4, the product of model.input");
  REQUIRE(Wrong("1 4 7\n0 1:1\n") == ":1: header says 7 labels, want 3 (the model's classes)");
  REQUIRE(Wrong("1 4\n0 1:1\n") ==
          ":1: header has 2 numbers, want three: rows, features and labels");
  REQUIRE(Wrong("0,1 1:1 2:1\n") == ":1: header has \"0,1\", want rows, features and labels");
  REQUIRE(Wrong("-1 4 3\n") == ":1: header has \"-1\", want rows, features and labels");
  REQUIRE(Wrong("99999999999 4 3\n").find(":1: header says 99999999999 rows, want at most") == 0);
  REQUIRE(Wrong("") == ": has no header, want a line of rows, features and labels");
}

TEST_CASE("more or fewer rows than the header says are refused", "[xc]") {
  REQUIRE(Wrong("3 4 3\n0 1:1\n1 1:1\n") == ": file ends after 2 rows, want 3, as its header says");
  REQUIRE(Wrong("1 4 3\n0 1:1\n1 1:1\n") ==
          ":3: file goes on after 1 rows, want its end, as the header says");
}

TEST_CASE("a malformed xc line is named with what it has and what is wanted", "[xc]") {
  const auto row = [](const std::string& text) { return Wrong("1 4 3\n" + text + "\n"); };
  REQUIRE(row("0 4:1") == ":2: index is \"4\", want 0 to 3 (the product of model.input - 1)");
  REQUIRE(row("0 -1:1").find(":2: index is \"-1\"") == 0);
  REQUIRE(row("0 2:1 2:1") == ":2: index is 2 after 2, want ascending ones");
  REQUIRE(row("0 3:1 0:1") == ":2: index is 0 after 3, want ascending ones");
  REQUIRE(row("0 1:x") == ":2: value at index 1 is \"x\", want a finite number");
  REQUIRE(row("0 1:") == ":2: value at index 1 is \"\", want a finite number");
  REQUIRE(row("0 1:nan") == ":2: value at index 1 is \"nan\", want a finite number");
  REQUIRE(row("0 1") == ":2: entry is \"1\", want index:value");
  REQUIRE(row("0 , 1:1") == ":2: entry is \",\", want index:value");
  REQUIRE(row("3 1:1") == ":2: label is \"3\", want 0 to 2 (the model's classes)");
  REQUIRE(row("-1 1:1").find(":2: label is \"-1\"") == 0);
  REQUIRE(row("0,,2 1:1") == ":2: label is \"\", want 0 to 2 (the model's classes)");
  REQUIRE(row("0, 1:1").find(":2: label is \"\"") == 0);
  REQUIRE(row("2,1,2 1:1") == ":2: label 2 is there twice, want it once");
}

TEST_CASE("a model that predicts one class wants one label in every row", "[xc]") {
  const auto table = Read("2 4 3\n2 1:1\n0 3:1\n", Spec(false));
  REQUIRE(table.ok());
  REQUIRE(std::get<Classes>(table->labels) == Classes{2, 0});
  REQUIRE(Wrong("1 4 3\n0,1 1:1\n", Spec(false))
              .find(":2: row has 2 labels, want one; sets of labels need model.loss") == 0);
  REQUIRE(Wrong("1 4 3\n 1:1\n", Spec(false)).find(":2: row has 0 labels, want one") == 0);
}

TEST_CASE("one sigmoid output goes with a header of one label or of two", "[xc]") {
  TableSpec spec = Spec(false);
  spec.classes = 2;
  spec.one_output = true;
  const auto one = Read("4 4 1\n0 1:1\n 3:1\n\n0\n", spec);
  REQUIRE(one.ok());
  REQUIRE(std::get<Classes>(one->labels) == Classes{1, 0, 0, 1});
  const auto two = Read("2 4 2\n1 1:1\n0 3:1\n", spec);
  REQUIRE(two.ok());
  REQUIRE(std::get<Classes>(two->labels) == Classes{1, 0});
  // Each file has its own.
  const auto both =
      ReadXc({WriteFile("a.txt", "1 4 1\n0 1:1\n"), WriteFile("b.txt", "1 4 2\n0 2:1\n")}, spec);
  REQUIRE(std::get<Classes>(both->labels) == Classes{1, 0});
  for (const std::string label : {"1", "0,0", "x"}) {
    REQUIRE(Wrong("1 4 1\n" + label + " 1:1\n", spec) ==
            ":2: label is \"" + label + "\", want 0 or none (header says 1 label)");
  }
  REQUIRE(Wrong("1 4 2\n 1:1\n", spec).find(":2: row has 0 labels, want one") == 0);
  // Of two outputs a header of one is not the model's.
  spec.one_output = false;
  REQUIRE(Wrong("1 4 1\n0 1:1\n", spec) ==
          ":1: header says 1 labels, want 2 (the model's classes)");
}

TEST_CASE("xc rows beyond the memory limit are refused at the first too many", "[xc]") {
  TableSpec spec = Spec();
  const std::string text = "2 4 3\n0 0:1 1:1 2:1\n1 0:1 1:1 2:1\n";
  const int64_t bytes = Read(text)->bytes();
  spec.bytes_max = bytes;
  REQUIRE(Read(text, spec).ok());
  spec.bytes_max = bytes - 1;
  REQUIRE(Read(text, spec).status().code() == absl::StatusCode::kResourceExhausted);
  REQUIRE(Wrong(text, spec).find(":3: rows up to here need more than") == 0);
}

}  // namespace
}  // namespace tessera
